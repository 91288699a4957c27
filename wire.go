package tutti

import (
	"tutti/server/grpcapi"
	"tutti/server/httpapi"
)

// wire makes the services that the options enable.
func (s *server) wire() error {
	catalog := &gate{Catalog: s.repo, s: s}
	if s.o.GRPC.Enabled {
		s.grpc = &front{title: "GRPCInferenceService", endpoint: s.o.GRPC.Endpoint, service: grpcapi.New(grpcapi.Settings{
			Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Live: s.live,
			Name: s.o.ID, Version: Version, Extensions: extensions(),
		})}
		s.fronts = append(s.fronts, s.grpc)
	}
	if s.o.HTTP.Enabled {
		s.http = &front{title: "HTTPService", endpoint: s.o.HTTP.Endpoint, service: httpapi.New(httpapi.Settings{
			Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Log: s.log, Live: s.live,
			Name: s.o.ID, Version: Version, Extensions: extensions(), MaxInput: s.o.HTTP.MaxInput,
		})}
		s.fronts = append(s.fronts, s.http)
	}
	if s.o.Metrics.Enabled {
		s.metrics = &front{title: "Metrics Service", endpoint: s.o.Metrics, service: newExporter(s.counted)}
		s.fronts = append(s.fronts, s.metrics)
	}
	return nil
}
