package tutti

import (
	"crypto/tls"
	"log/slog"

	"google.golang.org/grpc/keepalive"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/server/certs"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// wire builds the services that the options enable.
func (s *Server) wire() error {
	shown := &catalog{Catalog: s.repo, s: s}
	if s.o.GRPC.Enabled {
		settings, err := s.grpcSettings(shown)
		if err != nil {
			return err
		}
		s.grpc = &endpoint{title: "GRPCInferenceService", config: s.o.GRPC.Endpoint, socket: s.sockets.grpc, service: grpcapi.New(settings)}
		s.endpoints = append(s.endpoints, s.grpc)
	}
	if s.o.HTTP.Enabled {
		settings, err := s.httpSettings(shown)
		if err != nil {
			return err
		}
		if s.o.Dashboard.Enabled {
			if settings.UI, err = s.dashboard(); err != nil {
				return err
			}
		}
		s.http = &endpoint{title: "HTTPService", config: s.o.HTTP.Endpoint, socket: s.sockets.http, service: httpapi.New(settings)}
		s.endpoints = append(s.endpoints, s.http)
	}
	if s.o.Metrics.Enabled {
		s.exporter = &endpoint{title: "Metrics Service", config: s.o.Metrics.Endpoint, socket: s.sockets.metrics, service: newMetricsService(s.metrics)}
		s.endpoints = append(s.endpoints, s.exporter)
	}
	return nil
}

func (s *Server) grpcSettings(catalog *catalog) (grpcapi.Settings, error) {
	o := &s.o.GRPC
	set := grpcapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Log: s.journal, Restricted: o.Restricted,
		MaxMessage: o.MaxMessage, InFlight: s.inFlight, NoFastPath: !s.o.HTTP.FastPath,
		Keepalive: keepalive.ServerParameters{
			Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout, MaxConnectionAge: o.MaxAge, MaxConnectionAgeGrace: o.MaxAgeGrace,
		},
		Pings: keepalive.EnforcementPolicy{MinTime: o.MinPingInterval, PermitWithoutStream: o.PermitWithoutCalls},
	}
	if o.MinPingInterval == 0 { // any number of pings
		set.Pings = keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}
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

func (s *Server) httpSettings(catalog *catalog) (httpapi.Settings, error) {
	o := &s.o.HTTP
	set := httpapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Log: s.log, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Logs: s.journal, MaxInput: o.MaxInput, InFlight: s.inFlight, Restricted: o.Restricted,
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

// loadTLS reads the files for the encrypted connections of a protocol.
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
