package grpcapi

import (
	"context"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/proto/inference"
)

// TraceSetting changes the trace settings of a model, or the global ones, and returns the result. A key without a
// value is reset: to the global setting, or to the one at the start.
func (s *service) TraceSetting(_ context.Context, req *inference.TraceSettingRequest) (*inference.TraceSettingResponse, error) {
	if s.set.Tracer == nil {
		return nil, notSupported("TraceSetting")
	}
	model := req.GetModelName()
	if model != "" && s.set.Catalog.ModelReady(model, 0) != nil {
		return nil, wireError(status.Errorf(status.InvalidArg, "Request for unknown model : %s", model))
	}
	if len(req.GetSettings()) > 0 {
		changes := make(map[string][]string, len(req.GetSettings()))
		for key, v := range req.GetSettings() {
			changes[key] = v.GetValue()
		}
		if err := s.set.Tracer.Update(model, changes); err != nil {
			return nil, wireError(err)
		}
	}
	now := s.set.Tracer.Settings(model)
	resp := &inference.TraceSettingResponse{Settings: map[string]*inference.TraceSettingResponse_SettingValue{}}
	for key, values := range map[string][]string{
		"trace_level": now.Level, "trace_rate": {now.Rate}, "trace_count": {now.Count}, "trace_mode": {now.Mode},
	} {
		resp.Settings[key] = &inference.TraceSettingResponse_SettingValue{Value: values}
	}
	for key, value := range destination(&now) {
		resp.Settings[key] = &inference.TraceSettingResponse_SettingValue{Value: []string{value}}
	}
	return resp, nil
}

// destination returns the settings of the trace destination by name.
func destination(s *tracing.Settings) map[string]string {
	e := s.Exporter
	if e == nil {
		return map[string]string{"log_frequency": s.LogFrequency, "trace_file": s.File}
	}
	return map[string]string{
		"url": e.URL, "protocol": e.Protocol, "resource": e.Resource, "bsp_max_queue_size": e.QueueSize,
		"bsp_schedule_delay": e.ScheduleDelay, "bsp_max_export_batch_size": e.BatchSize, "detail": e.Detail,
	}
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
	if err != nil {
		return nil, wireError(err)
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
	return resp, nil
}

func logUpdate(settings map[string]*inference.LogSettingsRequest_SettingValue) (u logs.Update, err error) {
	for key, v := range settings {
		switch key {
		case "log_file":
			u.File, err = logText(key, v)
		case "log_format":
			u.Format, err = logText(key, v)
		case "log_info":
			u.Info, err = logBool(key, v)
		case "log_warning":
			u.Warning, err = logBool(key, v)
		case "log_error":
			u.Error, err = logBool(key, v)
		case "log_verbose_level":
			n, ok := v.GetParameterChoice().(*inference.LogSettingsRequest_SettingValue_Uint32Param)
			if !ok {
				return u, wrongType(key, "uint32_param")
			}
			u.Verbose = &n.Uint32Param
		default:
			err = status.Errorf(status.InvalidArg, "unrecognized log setting '%s'", key)
		}
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

func logText(key string, v *inference.LogSettingsRequest_SettingValue) (*string, error) {
	s, ok := v.GetParameterChoice().(*inference.LogSettingsRequest_SettingValue_StringParam)
	if !ok {
		return nil, wrongType(key, "string_param")
	}
	return &s.StringParam, nil
}

func logBool(key string, v *inference.LogSettingsRequest_SettingValue) (*bool, error) {
	b, ok := v.GetParameterChoice().(*inference.LogSettingsRequest_SettingValue_BoolParam)
	if !ok {
		return nil, wrongType(key, "bool_param")
	}
	return &b.BoolParam, nil
}
