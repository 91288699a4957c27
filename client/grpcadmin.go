package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/tutti-server/tutti/proto/inference"
)

// Live reports whether the server is live.
func (c *GRPC) Live(ctx context.Context) (bool, error) {
	a, err := c.stub.ServerLive(ctx, &inference.ServerLiveRequest{})
	return a.GetLive(), rpcError(err)
}

// ModelReady reports whether a model is ready. An empty version leaves the choice to the server.
func (c *GRPC) ModelReady(ctx context.Context, model, version string) (bool, error) {
	a, err := c.stub.ModelReady(ctx, &inference.ModelReadyRequest{Name: model, Version: version})
	if e, refused := rpcError(err).(*Error); refused && e.Status != codes.Unavailable.String() && e.Status != codes.Canceled.String() { //nolint:errorlint // not wrapped
		return false, nil // an unknown model is not ready, as over HTTP
	}
	return a.GetReady(), rpcError(err)
}

// Server describes the server.
func (c *GRPC) Server(ctx context.Context) (*ServerMetadata, error) {
	a, err := c.stub.ServerMetadata(ctx, &inference.ServerMetadataRequest{})
	if err != nil {
		return nil, rpcError(err)
	}
	return &ServerMetadata{Name: a.GetName(), Version: a.GetVersion(), Extensions: a.GetExtensions()}, nil
}

// Load loads a model, and returns when it is ready or has failed to load.
func (c *GRPC) Load(ctx context.Context, model string) error { return c.LoadWith(ctx, model, nil) }

// LoadWith loads a model with a configuration, and files, that replace those of its repository. nil is Load.
func (c *GRPC) LoadWith(ctx context.Context, model string, o *LoadOptions) error {
	m := &inference.RepositoryModelLoadRequest{ModelName: model, Parameters: map[string]*inference.ModelRepositoryParameter{}}
	if o != nil && o.Config != "" {
		m.Parameters["config"] = &inference.ModelRepositoryParameter{ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: o.Config}}
	}
	if o != nil {
		for path, content := range o.Files {
			m.Parameters["file:"+path] = &inference.ModelRepositoryParameter{ParameterChoice: &inference.ModelRepositoryParameter_BytesParam{BytesParam: content}}
		}
	}
	_, err := c.stub.RepositoryModelLoad(ctx, m)
	return rpcError(err)
}

// TraceSettings returns the trace settings of a model, or of the server if model is empty.
func (c *GRPC) TraceSettings(ctx context.Context, model string) (TraceSettings, error) {
	return c.SetTrace(ctx, model, nil)
}

// SetTrace changes trace settings of a model, or of the server, and returns all.
func (c *GRPC) SetTrace(ctx context.Context, model string, changes TraceSettings) (TraceSettings, error) {
	m := &inference.TraceSettingRequest{ModelName: model, Settings: map[string]*inference.TraceSettingRequest_SettingValue{}}
	for name, values := range changes {
		m.Settings[name] = &inference.TraceSettingRequest_SettingValue{Value: values}
	}
	a, err := c.stub.TraceSetting(ctx, m)
	if err != nil {
		return nil, rpcError(err)
	}
	all := TraceSettings{}
	for name, s := range a.GetSettings() {
		all[name] = s.GetValue()
	}
	return all, nil
}

// LogSettings returns the log settings.
func (c *GRPC) LogSettings(ctx context.Context) (LogSettings, error) { return c.SetLog(ctx, nil) }

// SetLog changes log settings and returns all.
func (c *GRPC) SetLog(ctx context.Context, changes LogSettings) (LogSettings, error) {
	m := &inference.LogSettingsRequest{Settings: map[string]*inference.LogSettingsRequest_SettingValue{}}
	for name, v := range changes {
		s := &inference.LogSettingsRequest_SettingValue{}
		switch v := v.(type) {
		case bool:
			s.ParameterChoice = &inference.LogSettingsRequest_SettingValue_BoolParam{BoolParam: v}
		case uint32:
			s.ParameterChoice = &inference.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: v}
		case string:
			s.ParameterChoice = &inference.LogSettingsRequest_SettingValue_StringParam{StringParam: v}
		default:
			return nil, fmt.Errorf("log setting '%s' is a %T, expected bool, uint32 or string", name, v)
		}
		m.Settings[name] = s
	}
	a, err := c.stub.LogSettings(ctx, m)
	if err != nil {
		return nil, rpcError(err)
	}
	all := LogSettings{}
	for name, s := range a.GetSettings() {
		switch v := s.GetParameterChoice().(type) {
		case *inference.LogSettingsResponse_SettingValue_BoolParam:
			all[name] = v.BoolParam
		case *inference.LogSettingsResponse_SettingValue_Uint32Param:
			all[name] = v.Uint32Param
		case *inference.LogSettingsResponse_SettingValue_StringParam:
			all[name] = v.StringParam
		}
	}
	return all, nil
}

// RegisterSystem registers size bytes from an offset of a POSIX shared memory object under a name.
func (c *GRPC) RegisterSystem(ctx context.Context, name, key string, offset, size uint64) error {
	if name == "" {
		return errNoRegion
	}
	_, err := c.stub.SystemSharedMemoryRegister(ctx, &inference.SystemSharedMemoryRegisterRequest{Name: name, Key: key, Offset: offset, ByteSize: size})
	return rpcError(err)
}

// UnregisterSystem unregisters a region, or all if name is empty.
func (c *GRPC) UnregisterSystem(ctx context.Context, name string) error {
	_, err := c.stub.SystemSharedMemoryUnregister(ctx, &inference.SystemSharedMemoryUnregisterRequest{Name: name})
	return rpcError(err)
}

// SystemRegions returns the region of a name, or all if name is empty, in no order.
func (c *GRPC) SystemRegions(ctx context.Context, name string) ([]SystemRegion, error) {
	a, err := c.stub.SystemSharedMemoryStatus(ctx, &inference.SystemSharedMemoryStatusRequest{Name: name})
	var list []SystemRegion
	for _, r := range a.GetRegions() {
		list = append(list, SystemRegion{Name: r.GetName(), Key: r.GetKey(), Offset: r.GetOffset(), Size: r.GetByteSize()})
	}
	return list, rpcError(err)
}

// RegisterCUDA registers memory of a GPU, of which handle is the cudaIpcMemHandle_t, under a name.
func (c *GRPC) RegisterCUDA(ctx context.Context, name string, handle []byte, device int64, size uint64) error {
	if name == "" {
		return errNoRegion
	}
	_, err := c.stub.CudaSharedMemoryRegister(ctx, &inference.CudaSharedMemoryRegisterRequest{Name: name, RawHandle: handle, DeviceId: device, ByteSize: size})
	return rpcError(err)
}

// UnregisterCUDA unregisters a region, or all if name is empty.
func (c *GRPC) UnregisterCUDA(ctx context.Context, name string) error {
	_, err := c.stub.CudaSharedMemoryUnregister(ctx, &inference.CudaSharedMemoryUnregisterRequest{Name: name})
	return rpcError(err)
}

// CUDARegions returns the region of a name, or all if name is empty, in no order.
func (c *GRPC) CUDARegions(ctx context.Context, name string) ([]CUDARegion, error) {
	a, err := c.stub.CudaSharedMemoryStatus(ctx, &inference.CudaSharedMemoryStatusRequest{Name: name})
	var list []CUDARegion
	for _, r := range a.GetRegions() {
		list = append(list, CUDARegion{Name: r.GetName(), Device: int64(r.GetDeviceId()), Size: r.GetByteSize()}) //nolint:gosec // few devices
	}
	return list, rpcError(err)
}
