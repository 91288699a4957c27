package grpcapi

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/inference"
)

func (s *service) live() bool  { return !s.shuttingDown() && (s.set.Live == nil || s.set.Live()) }
func (s *service) ready() bool { return s.live() && s.set.Catalog.Ready() }

// ServerLive reports whether the server is live.
func (s *service) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.live()}, nil
}

// ServerReady reports whether every model that should serve is ready.
func (s *service) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.ready()}, nil
}

// ModelReady reports whether a version serves. An unknown version is not ready, without an error: clients poll
// until it is.
func (s *service) ModelReady(_ context.Context, req *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	version, err := modelVersion(req.GetName(), req.GetVersion(), "ModelReady")
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.ModelReadyResponse{Ready: s.set.Catalog.ModelReady(req.GetName(), version) == nil}, nil
}

// modelVersion parses the version of a request that must name a model.
func modelVersion(name, version, method string) (int64, error) {
	if name == "" {
		return 0, status.Errorf(status.InvalidArg, "Missing model name in %s request", method)
	}
	return infer.ParseVersion(version)
}

// ServerMetadata returns the server's name, version and extensions.
func (s *service) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: s.set.Name, Version: s.set.Version, Extensions: s.set.Extensions}, nil
}

// ModelMetadata describes a model's inputs and outputs.
func (s *service) ModelMetadata(_ context.Context, req *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	version, err := modelVersion(req.GetName(), req.GetVersion(), "ModelMetadata")
	if err != nil {
		return nil, wireError(err)
	}
	m, err := s.set.Catalog.Metadata(req.GetName(), version)
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.ModelMetadataResponse{
		Name:     m.Name,
		Versions: m.Versions,
		Platform: m.Platform,
		Inputs:   tensors(m.Inputs),
		Outputs:  tensors(m.Outputs),
	}, nil
}

func tensors(list []infer.TensorMetadata) []*inference.ModelMetadataResponse_TensorMetadata {
	all := make([]*inference.ModelMetadataResponse_TensorMetadata, len(list))
	for i, t := range list {
		all[i] = &inference.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape}
	}
	return all
}

// ModelConfig returns a model's completed configuration.
func (s *service) ModelConfig(_ context.Context, req *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	version, err := modelVersion(req.GetName(), req.GetVersion(), "ModelConfig")
	if err != nil {
		return nil, wireError(err)
	}
	cfg, err := s.set.Catalog.Config(req.GetName(), version)
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.ModelConfigResponse{Config: cfg}, nil
}
