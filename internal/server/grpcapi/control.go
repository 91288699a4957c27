package grpcapi

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/proto/inference"
)

// notSupported is the error of a method without its service.
func notSupported(method string) error {
	return status.Errorf(status.Unsupported, "the %s method is not supported by this server", method)
}

// RepositoryIndex lists the models, all or the ready ones. The repository's name is ignored.
func (s *service) RepositoryIndex(ctx context.Context, req *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if s.set.Lifecycle == nil {
		return nil, notSupported("RepositoryIndex")
	}
	resp := &inference.RepositoryIndexResponse{}
	who, shown := identity.From(ctx), s.set.Lifecycle.Index(req.GetReady())
	if who != nil {
		shown = slices.DeleteFunc(slices.Clone(shown), func(e infer.Entry) bool { return !who.Sees(identity.GroupOf(infer.APIModelRepository), e.Name) })
	}
	return resp, convert(shown, &resp.Models)
}

// RepositoryModelLoad loads a model. It returns when the model serves, or an error.
func (s *service) RepositoryModelLoad(ctx context.Context, req *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	return &inference.RepositoryModelLoadResponse{}, s.changeModel("RepositoryModelLoad", req.GetRepositoryName(), func() error {
		o, err := loadOptions(req.GetParameters())
		if err == nil && (o.Config != "" || len(o.Files) > 0) {
			err = identity.From(ctx).MayReach("a load with a configuration or files")
		}
		if err == nil {
			err = s.set.Lifecycle.Load(ctx, req.GetModelName(), o)
		}
		return err
	})
}

// RepositoryModelUnload unloads a model. Requests in flight continue.
func (s *service) RepositoryModelUnload(ctx context.Context, req *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	return &inference.RepositoryModelUnloadResponse{}, s.changeModel("RepositoryModelUnload", req.GetRepositoryName(), func() error {
		p, given := req.GetParameters()["unload_dependents"]
		v, ok := p.GetParameterChoice().(*inference.ModelRepositoryParameter_BoolParam)
		if given && !ok {
			return wrongType("unload_dependents", "bool_param")
		}
		if given && v.BoolParam {
			if err := identity.From(ctx).MayReach("an unload of dependents"); err != nil {
				return err
			}
		}
		return s.set.Lifecycle.Unload(ctx, req.GetModelName(), given && v.BoolParam)
	})
}

// changeModel calls change, a load or unload, and wakes the watchers. It rejects the name of a repository: all
// repositories are served as one.
func (s *service) changeModel(method, repository string, change func() error) error {
	switch {
	case s.set.Lifecycle == nil:
		return notSupported(method)
	case repository != "":
		return status.Errorf(status.Unsupported, "'repository_name' specification is not supported")
	}
	defer s.watchers.wake()
	return change()
}

func loadOptions(params map[string]*inference.ModelRepositoryParameter) (o infer.LoadOptions, err error) {
	for key, p := range params {
		path, file := strings.CutPrefix(key, "file:") // as in "file:1/model.onnx"
		switch {
		case key == "config":
			v, ok := p.GetParameterChoice().(*inference.ModelRepositoryParameter_StringParam)
			if !ok {
				return o, wrongLoad(key, "string_param")
			}
			o.Config = v.StringParam
		case file:
			v, ok := p.GetParameterChoice().(*inference.ModelRepositoryParameter_BytesParam)
			if !ok {
				return o, wrongLoad(key, "bytes_param")
			}
			if o.Files == nil {
				o.Files = map[string][]byte{}
			}
			o.Files[path] = v.BytesParam
		default:
			return o, status.Errorf(status.InvalidArg, "unrecognized load parameter '%s'.", key)
		}
	}
	return o, nil
}

func wrongLoad(key, want string) error {
	return status.Errorf(status.InvalidArg, "invalid value type for load parameter '%s', expected %s.", key, want)
}

// SystemSharedMemoryStatus describes one registered region, or all.
func (s *service) SystemSharedMemoryStatus(
	_ context.Context, req *inference.SystemSharedMemoryStatusRequest,
) (*inference.SystemSharedMemoryStatusResponse, error) {
	list, err := s.set.Regions.Status(shm.System, req.GetName())
	all := make(map[string]*inference.SystemSharedMemoryStatusResponse_RegionStatus, len(list))
	for _, r := range list {
		all[r.Name] = &inference.SystemSharedMemoryStatusResponse_RegionStatus{Name: r.Name, Key: r.Key, Offset: r.Offset, ByteSize: r.Size}
	}
	return &inference.SystemSharedMemoryStatusResponse{Regions: all}, err
}

// SystemSharedMemoryRegister registers a client's shared memory under a name.
func (s *service) SystemSharedMemoryRegister(
	_ context.Context, req *inference.SystemSharedMemoryRegisterRequest,
) (*inference.SystemSharedMemoryRegisterResponse, error) {
	err := s.set.Regions.RegisterSystem(req.GetName(), req.GetKey(), req.GetOffset(), req.GetByteSize())
	return &inference.SystemSharedMemoryRegisterResponse{}, err
}

// SystemSharedMemoryUnregister unregisters one region, or all.
func (s *service) SystemSharedMemoryUnregister(
	_ context.Context, req *inference.SystemSharedMemoryUnregisterRequest,
) (*inference.SystemSharedMemoryUnregisterResponse, error) {
	return &inference.SystemSharedMemoryUnregisterResponse{}, s.set.Regions.Unregister(shm.System, req.GetName())
}

// CudaSharedMemoryStatus describes one registered region, or all.
func (s *service) CudaSharedMemoryStatus(
	_ context.Context, req *inference.CudaSharedMemoryStatusRequest,
) (*inference.CudaSharedMemoryStatusResponse, error) {
	list, err := s.set.Regions.Status(shm.CUDA, req.GetName())
	all := make(map[string]*inference.CudaSharedMemoryStatusResponse_RegionStatus, len(list))
	for _, r := range list {
		all[r.Name] = &inference.CudaSharedMemoryStatusResponse_RegionStatus{Name: r.Name, DeviceId: uint64(r.Device), ByteSize: r.Size}
	}
	return &inference.CudaSharedMemoryStatusResponse{Regions: all}, err
}

// CudaSharedMemoryRegister registers a client's device memory under a name.
func (s *service) CudaSharedMemoryRegister(
	_ context.Context, req *inference.CudaSharedMemoryRegisterRequest,
) (*inference.CudaSharedMemoryRegisterResponse, error) {
	err := s.set.Regions.RegisterCUDA(req.GetName(), req.GetRawHandle(), req.GetDeviceId(), req.GetByteSize())
	return &inference.CudaSharedMemoryRegisterResponse{}, err
}

// CudaSharedMemoryUnregister unregisters one region, or all.
func (s *service) CudaSharedMemoryUnregister(
	_ context.Context, req *inference.CudaSharedMemoryUnregisterRequest,
) (*inference.CudaSharedMemoryUnregisterResponse, error) {
	return &inference.CudaSharedMemoryUnregisterResponse{}, s.set.Regions.Unregister(shm.CUDA, req.GetName())
}

// TraceSetting changes the trace settings of a model, or the global ones, and returns the result. A key without a
// value is reset: to the global setting, or to the one at the start.
func (s *service) TraceSetting(_ context.Context, req *inference.TraceSettingRequest) (*inference.TraceSettingResponse, error) {
	if s.set.Tracer == nil {
		return nil, notSupported("TraceSetting")
	}
	model := req.GetModelName()
	if model != "" && s.set.Catalog.ModelReady(model, 0) != nil {
		return nil, status.Errorf(status.InvalidArg, "Request for unknown model : %s", model)
	}
	if len(req.GetSettings()) > 0 {
		changes := make(map[string][]string, len(req.GetSettings()))
		for key, v := range req.GetSettings() {
			changes[key] = v.GetValue()
		}
		if err := s.set.Tracer.Update(model, changes); err != nil {
			return nil, err
		}
	}
	now := s.set.Tracer.Settings(model)
	shown := map[string][]string{"trace_level": now.Level, "trace_rate": {now.Rate}, "trace_count": {now.Count}, "trace_mode": {now.Mode}}
	if e := now.Exporter; e != nil {
		maps.Copy(shown, map[string][]string{
			"url": {e.URL}, "protocol": {e.Protocol}, "resource": {e.Resource}, "bsp_max_queue_size": {e.QueueSize},
			"bsp_schedule_delay": {e.ScheduleDelay}, "bsp_max_export_batch_size": {e.BatchSize}, "detail": {e.Detail},
		})
	} else {
		shown["log_frequency"], shown["trace_file"] = []string{now.LogFrequency}, []string{now.File}
	}
	resp := &inference.TraceSettingResponse{Settings: map[string]*inference.TraceSettingResponse_SettingValue{}}
	for key, values := range shown {
		resp.Settings[key] = &inference.TraceSettingResponse_SettingValue{Value: values}
	}
	return resp, nil
}

// LogSettings changes the log settings and returns the result.
func (s *service) LogSettings(_ context.Context, req *inference.LogSettingsRequest) (*inference.LogSettingsResponse, error) {
	if s.set.Log == nil {
		return nil, notSupported("LogSettings")
	}
	u, err := logUpdate(req.GetSettings())
	if err == nil {
		err = s.set.Log.Update(u)
	}
	now := s.set.Log.Settings()
	resp := &inference.LogSettingsResponse{Settings: map[string]*inference.LogSettingsResponse_SettingValue{
		"log_verbose_level": {ParameterChoice: &inference.LogSettingsResponse_SettingValue_Uint32Param{Uint32Param: now.Verbose}},
	}}
	for key, v := range map[string]bool{"log_info": now.Info, "log_warning": now.Warning, "log_error": now.Error} {
		resp.Settings[key] = &inference.LogSettingsResponse_SettingValue{
			ParameterChoice: &inference.LogSettingsResponse_SettingValue_BoolParam{BoolParam: v},
		}
	}
	for key, v := range map[string]string{"log_file": now.File, "log_format": now.Format} {
		resp.Settings[key] = &inference.LogSettingsResponse_SettingValue{
			ParameterChoice: &inference.LogSettingsResponse_SettingValue_StringParam{StringParam: v},
		}
	}
	return resp, err
}

func logUpdate(settings map[string]*inference.LogSettingsRequest_SettingValue) (u logs.Update, err error) {
	texts := map[string]**string{"log_file": &u.File, "log_format": &u.Format}
	switches := map[string]**bool{"log_info": &u.Info, "log_warning": &u.Warning, "log_error": &u.Error}
	for key, v := range settings {
		text, isText := v.GetParameterChoice().(*inference.LogSettingsRequest_SettingValue_StringParam)
		on, isBool := v.GetParameterChoice().(*inference.LogSettingsRequest_SettingValue_BoolParam)
		level, isUint := v.GetParameterChoice().(*inference.LogSettingsRequest_SettingValue_Uint32Param)
		switch {
		case texts[key] != nil && isText:
			*texts[key] = &text.StringParam
		case switches[key] != nil && isBool:
			*switches[key] = &on.BoolParam
		case key == "log_verbose_level" && isUint:
			u.Verbose = &level.Uint32Param
		case texts[key] != nil:
			return u, wrongType(key, "string_param")
		case switches[key] != nil:
			return u, wrongType(key, "bool_param")
		case key == "log_verbose_level":
			return u, wrongType(key, "uint32_param")
		default:
			return u, status.Errorf(status.InvalidArg, "unrecognized log setting '%s'", key)
		}
	}
	return u, nil
}
