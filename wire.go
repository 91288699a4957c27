package tutti

import (
	"crypto/tls"
	"log/slog"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/server/certs"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// wire makes the services that the options enable.
func (s *server) wire() error {
	catalog := &gate{Catalog: s.repo, s: s}
	if s.o.GRPC.Enabled {
		settings, err := s.grpcSettings(catalog)
		if err != nil {
			return err
		}
		s.grpc = &front{title: "GRPCInferenceService", endpoint: s.o.GRPC.Endpoint, socket: s.sockets.grpc, service: grpcapi.New(settings)}
		s.fronts = append(s.fronts, s.grpc)
	}
	if s.o.HTTP.Enabled {
		settings, err := s.httpSettings(catalog)
		if err != nil {
			return err
		}
		if s.o.Dashboard.Enabled {
			if settings.UI, err = s.dashboard(); err != nil {
				return err
			}
		}
		s.http = &front{title: "HTTPService", endpoint: s.o.HTTP.Endpoint, socket: s.sockets.http, service: httpapi.New(settings)}
		s.fronts = append(s.fronts, s.http)
	}
	if s.o.Metrics.Enabled {
		s.metrics = &front{title: "Metrics Service", endpoint: s.o.Metrics.Endpoint, socket: s.sockets.metrics, service: newExporter(s.counted)}
		s.fronts = append(s.fronts, s.metrics)
	}
	return nil
}

func (s *server) grpcSettings(catalog *gate) (grpcapi.Settings, error) {
	o := &s.o.GRPC
	set := grpcapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Log: s.logs, Restricted: restricted(o.Restricted),
		MaxMessage: o.MaxMessage, InFlight: s.inFlight, NoFastPath: !s.o.HTTP.FastPath,
		Keepalive: grpcapi.Keepalive{
			Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout, PermitWithoutCalls: o.PermitWithoutCalls,
			MinPingInterval: o.MinPingInterval, AnyPings: o.MinPingInterval == 0, MaxAge: o.MaxAge, MaxAgeGrace: o.MaxAgeGrace,
		},
	}
	var err error
	if set.Compression, err = grpcapi.ParseCompression(o.Compression); err != nil {
		return set, err
	}
	if set.ForwardHeaders, err = o.Forward(); err != nil {
		return set, err
	}
	if t := &o.TLS; t.Enabled {
		set.TLS, err = loadTLS(t, "gRPC", s.log, "h2")
	}
	return set, err
}

func (s *server) httpSettings(catalog *gate) (httpapi.Settings, error) {
	o := &s.o.HTTP
	set := httpapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Log: s.log, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Logs: s.logs, MaxInput: o.MaxInput, InFlight: s.inFlight, Restricted: restricted(o.Restricted),
		NoFastPath: !o.FastPath,
	}
	var err error
	if set.Forward, err = o.Forward(); err != nil {
		return set, err
	}
	if t := &o.TLS; t.Enabled {
		set.TLS, err = loadTLS(t, "HTTP", s.log, "h2", "http/1.1")
	}
	return set, err
}

// restricted names the categories as the front ends do.
func restricted(list []options.Restriction) []infer.Restriction {
	all := make([]infer.Restriction, len(list))
	for i, r := range list {
		all[i] = infer.Restriction{Key: r.Key, Value: r.Value}
		for _, name := range r.APIs {
			if api, ok := infer.ParseAPI(name); ok { // every name was checked
				all[i].APIs = append(all[i].APIs, api)
			}
		}
	}
	return all
}

// loadTLS reads the files of a protocol's encrypted connections.
func loadTLS(t *options.TLS, title string, log *slog.Logger, protocols ...string) (*tls.Config, error) {
	files := certs.Files{Cert: t.ServerCert, Key: t.ServerKey}
	if t.Mutual {
		files.ClientCA = t.RootCert
	}
	c, err := certs.Load(files, log, protocols...)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unable to use the TLS files of %s: %w", title, err)
	}
	return c, nil
}
