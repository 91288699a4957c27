package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
)

// healthy gets a path of health. A refusal means no.
func (c *HTTP) healthy(ctx context.Context, path string) (bool, error) {
	err := c.call(ctx, path, nil, nil)
	if _, refused := errors.AsType[*Error](err); refused {
		return false, nil
	}
	return err == nil, err
}

// Live reports whether the server is live.
func (c *HTTP) Live(ctx context.Context) (bool, error) { return c.healthy(ctx, "/v2/health/live") }

// ModelReady reports whether a model is ready. An empty version leaves the choice to the server.
func (c *HTTP) ModelReady(ctx context.Context, model, version string) (bool, error) {
	return c.healthy(ctx, modelPath(model, version)+"/ready")
}

// Server describes the server.
func (c *HTTP) Server(ctx context.Context) (*ServerMetadata, error) {
	md := &ServerMetadata{}
	return md, c.call(ctx, "/v2", nil, md)
}

// Load loads a model, and returns when it is ready or has failed to load.
func (c *HTTP) Load(ctx context.Context, model string) error { return c.LoadWith(ctx, model, nil) }

// LoadWith loads a model with a configuration, and files, that replace those of its repository. nil is Load.
func (c *HTTP) LoadWith(ctx context.Context, model string, o *LoadOptions) error {
	params := map[string]any{}
	if o != nil && o.Config != "" {
		params["config"] = o.Config
	}
	if o != nil {
		for path, content := range o.Files {
			params["file:"+path] = append([]byte{}, content...) // encoding/json writes bytes as base64, and nil as null
		}
	}
	body := map[string]any{}
	if len(params) > 0 {
		body["parameters"] = params
	}
	return c.call(ctx, "/v2/repository/models/"+url.PathEscape(model)+"/load", body, nil)
}

// tracePath returns the path of trace settings.
func tracePath(model string) string {
	if model == "" {
		return "/v2/trace/setting"
	}
	return modelPath(model, "") + "/trace/setting"
}

// TraceSettings returns the trace settings of a model, or of the server if model is empty.
func (c *HTTP) TraceSettings(ctx context.Context, model string) (TraceSettings, error) {
	return c.trace(ctx, model, nil)
}

// SetTrace changes trace settings of a model, or of the server, and returns all.
func (c *HTTP) SetTrace(ctx context.Context, model string, changes TraceSettings) (TraceSettings, error) {
	body := map[string]any{}
	for name, values := range changes {
		switch {
		case len(values) == 0:
			body[name] = nil
		case name == "trace_level":
			body[name] = values
		default:
			body[name] = values[0]
		}
	}
	return c.trace(ctx, model, body)
}

func (c *HTTP) trace(ctx context.Context, model string, body any) (TraceSettings, error) {
	var raw map[string]json.RawMessage
	if err := c.call(ctx, tracePath(model), body, &raw); err != nil {
		return nil, err
	}
	all := TraceSettings{}
	for name, text := range raw {
		var one string
		var list []string
		if json.Unmarshal(text, &one) == nil {
			list = []string{one}
		} else if json.Unmarshal(text, &list) != nil {
			list = []string{string(text)} // a number or a switch of an exporter
		}
		all[name] = list
	}
	return all, nil
}

// LogSettings returns the log settings.
func (c *HTTP) LogSettings(ctx context.Context) (LogSettings, error) { return c.log(ctx, nil) }

// SetLog changes log settings and returns all.
func (c *HTTP) SetLog(ctx context.Context, changes LogSettings) (LogSettings, error) {
	return c.log(ctx, changes)
}

func (c *HTTP) log(ctx context.Context, changes LogSettings) (LogSettings, error) {
	var body any
	if changes != nil {
		body = changes
	}
	all := LogSettings{}
	if err := c.call(ctx, "/v2/logging", body, &all); err != nil {
		return nil, err
	}
	for name, v := range all {
		if n, ok := v.(float64); ok {
			all[name] = uint32(n)
		}
	}
	return all, nil
}

// regionPath returns the path of a verb for a region, or for all regions.
func regionPath(kind, name, verb string) string {
	if name == "" {
		return "/v2/" + kind + "sharedmemory/" + verb
	}
	return "/v2/" + kind + "sharedmemory/region/" + url.PathEscape(name) + "/" + verb
}

var errNoRegion = errors.New("expected the name of a shared memory region, found none")

// RegisterSystem registers size bytes from an offset of a POSIX shared memory object under a name.
func (c *HTTP) RegisterSystem(ctx context.Context, name, key string, offset, size uint64) error {
	if name == "" {
		return errNoRegion
	}
	return c.call(ctx, regionPath("system", name, "register"), map[string]any{"key": key, "offset": offset, "byte_size": size}, nil)
}

// UnregisterSystem unregisters a region, or all if name is empty.
func (c *HTTP) UnregisterSystem(ctx context.Context, name string) error {
	return c.call(ctx, regionPath("system", name, "unregister"), struct{}{}, nil)
}

// SystemRegions returns the region of a name, or all if name is empty, in no order.
func (c *HTTP) SystemRegions(ctx context.Context, name string) ([]SystemRegion, error) {
	var list []SystemRegion
	err := c.call(ctx, regionPath("system", name, "status"), nil, &list)
	return list, err
}

// RegisterCUDA registers memory of a GPU, of which handle is the cudaIpcMemHandle_t, under a name.
func (c *HTTP) RegisterCUDA(ctx context.Context, name string, handle []byte, device int64, size uint64) error {
	if name == "" {
		return errNoRegion
	}
	body := map[string]any{"raw_handle": map[string][]byte{"b64": handle}, "device_id": device, "byte_size": size}
	return c.call(ctx, regionPath("cuda", name, "register"), body, nil)
}

// UnregisterCUDA unregisters a region, or all if name is empty.
func (c *HTTP) UnregisterCUDA(ctx context.Context, name string) error {
	return c.call(ctx, regionPath("cuda", name, "unregister"), struct{}{}, nil)
}

// CUDARegions returns the region of a name, or all if name is empty, in no order.
func (c *HTTP) CUDARegions(ctx context.Context, name string) ([]CUDARegion, error) {
	var list []CUDARegion
	err := c.call(ctx, regionPath("cuda", name, "status"), nil, &list)
	return list, err
}
