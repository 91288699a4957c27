package grpcapi

import (
	"context"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/inference"
)

// notSupported is the error of a method without its service.
func notSupported(method string) error {
	return wireError(status.Errorf(status.Unsupported, "the %s method is not supported by this server", method))
}

// checkRepository rejects the name of a repository: all repositories are served as one.
func checkRepository(name string) error {
	if name == "" {
		return nil
	}
	return status.Errorf(status.Unsupported, "'repository_name' specification is not supported")
}

// RepositoryIndex lists the models, all or the ready ones. The repository's name is ignored.
func (s *service) RepositoryIndex(_ context.Context, req *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if s.set.Lifecycle == nil {
		return nil, notSupported("RepositoryIndex")
	}
	list := s.set.Lifecycle.Index(req.GetReady())
	resp := &inference.RepositoryIndexResponse{Models: make([]*inference.RepositoryIndexResponse_ModelIndex, len(list))}
	for i, e := range list {
		resp.Models[i] = &inference.RepositoryIndexResponse_ModelIndex{
			Name: e.Name, Version: e.Version, State: string(e.State), Reason: e.Reason,
		}
	}
	return resp, nil
}

// RepositoryModelLoad loads a model. It returns when the model serves, or an error.
func (s *service) RepositoryModelLoad(ctx context.Context, req *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	if s.set.Lifecycle == nil {
		return nil, notSupported("RepositoryModelLoad")
	}
	o, err := loadOptions(req.GetParameters())
	if err = firstError(checkRepository(req.GetRepositoryName()), err); err == nil {
		err = s.set.Lifecycle.Load(ctx, req.GetModelName(), o)
		s.watchers.wake()
	}
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.RepositoryModelLoadResponse{}, nil
}

// filePrefix precedes the path in the name of a file parameter.
const filePrefix = "file:"

func loadOptions(params map[string]*inference.ModelRepositoryParameter) (o infer.LoadOptions, err error) {
	for key, p := range params {
		path, file := strings.CutPrefix(key, filePrefix)
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

// RepositoryModelUnload unloads a model. Requests in flight continue.
func (s *service) RepositoryModelUnload(ctx context.Context, req *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	if s.set.Lifecycle == nil {
		return nil, notSupported("RepositoryModelUnload")
	}
	dependents, err := unloadDependents(req.GetParameters())
	if err = firstError(checkRepository(req.GetRepositoryName()), err); err == nil {
		err = s.set.Lifecycle.Unload(ctx, req.GetModelName(), dependents)
		s.watchers.wake()
	}
	if err != nil {
		return nil, wireError(err)
	}
	return &inference.RepositoryModelUnloadResponse{}, nil
}

func unloadDependents(params map[string]*inference.ModelRepositoryParameter) (bool, error) {
	p, ok := params["unload_dependents"]
	if !ok {
		return false, nil
	}
	v, ok := p.GetParameterChoice().(*inference.ModelRepositoryParameter_BoolParam)
	if !ok {
		return false, wrongType("unload_dependents", "bool_param")
	}
	return v.BoolParam, nil
}
