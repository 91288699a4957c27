package tutti

import (
	"regexp"

	"tutti/core/status"
	"tutti/server/grpcapi"
	"tutti/server/httpapi"
)

// wire makes the services that the options enable.
func (s *server) wire() error {
	catalog := &gate{Catalog: s.repo, s: s}
	if s.o.GRPC.Enabled {
		settings, err := s.grpcSettings(catalog)
		if err != nil {
			return err
		}
		s.grpc = &front{title: "GRPCInferenceService", endpoint: s.o.GRPC.Endpoint, service: grpcapi.New(settings)}
		s.fronts = append(s.fronts, s.grpc)
	}
	if s.o.HTTP.Enabled {
		settings, err := s.httpSettings(catalog)
		if err != nil {
			return err
		}
		s.http = &front{title: "HTTPService", endpoint: s.o.HTTP.Endpoint, service: httpapi.New(settings)}
		s.fronts = append(s.fronts, s.http)
	}
	if s.o.Metrics.Enabled {
		s.metrics = &front{title: "Metrics Service", endpoint: s.o.Metrics, service: newExporter(s.counted)}
		s.fronts = append(s.fronts, s.metrics)
	}
	return nil
}

func (s *server) grpcSettings(catalog *gate) (grpcapi.Settings, error) {
	o := &s.o.GRPC
	set := grpcapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Log: s.logs,
		Keepalive: grpcapi.Keepalive{
			Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout, PermitWithoutCalls: o.PermitWithoutCalls,
			MinPingInterval: o.MinPingInterval, AnyPings: o.MinPingInterval == 0, MaxAge: o.MaxAge, MaxAgeGrace: o.MaxAgeGrace,
		},
	}
	for _, r := range o.Restricted {
		set.Restricted = append(set.Restricted, grpcapi.Restriction{Protocols: r.APIs, Key: r.Key, Value: r.Value})
	}
	var err error
	if set.Compression, err = grpcapi.ParseCompression(o.Compression); err != nil {
		return set, err
	}
	if set.ForwardHeaders, err = forward(o.ForwardPattern, ""); err != nil {
		return set, err
	}
	if t := o.TLS; t.Enabled {
		set.Credentials, err = grpcapi.TLS{Cert: t.ServerCert, Key: t.ServerKey, Root: t.RootCert, Mutual: t.Mutual}.Credentials()
		err = tlsError("gRPC", err)
	}
	return set, err
}

func (s *server) httpSettings(catalog *gate) (httpapi.Settings, error) {
	o := &s.o.HTTP
	set := httpapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Log: s.log, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Logs: s.logs, MaxInput: o.MaxInput,
	}
	for _, r := range o.Restricted {
		one := httpapi.Restriction{Key: r.Key, Value: r.Value}
		for _, name := range r.APIs {
			if api, ok := httpapi.ParseAPI(name); ok { // every name was checked
				one.APIs = append(one.APIs, api)
			}
		}
		set.Restricted = append(set.Restricted, one)
	}
	var err error
	if set.Forward, err = forward(o.ForwardPattern, ignoreCase); err != nil {
		return set, err
	}
	if t := o.TLS; t.Enabled {
		files := httpapi.TLSFiles{Cert: t.ServerCert, Key: t.ServerKey}
		if t.Mutual {
			files.ClientCA = t.RootCert
		}
		set.TLS, err = httpapi.LoadTLS(files, s.log)
		err = tlsError("HTTP", err)
	}
	return set, err
}

// ignoreCase begins the pattern of HTTP headers, whose names have no case.
const ignoreCase = "(?i)"

// forward compiles a header forward pattern that options begin; nil for none.
func forward(pattern, options string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil //nolint:nilnil // nothing is forwarded
	}
	return regexp.Compile(options + pattern)
}

func tlsError(protocol string, err error) error {
	if err == nil {
		return nil
	}
	return status.Errorf(status.InvalidArg, "unable to use the TLS files of %s: %w", protocol, err)
}
