package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// post sends a JSON body to a path and decodes the JSON response into to, which may be nil.
func (c *HTTP) post(ctx context.Context, path string, body, to any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, _, err := c.do(hr)
	if err != nil || to == nil {
		return err
	}
	return decode(hr, answer, to)
}

// Index lists the models of the server's repositories.
func (c *HTTP) Index(ctx context.Context) ([]infer.Entry, error) {
	var list []infer.Entry // encoding/json ignores the case of names
	err := c.post(ctx, "/v2/repository/index", map[string]bool{"ready": false}, &list)
	return list, err
}

// Load loads a model, and returns when it is ready or has failed to load.
func (c *HTTP) Load(ctx context.Context, model string) error {
	return c.post(ctx, "/v2/repository/models/"+url.PathEscape(model)+"/load", struct{}{}, nil)
}

// Unload unloads a model. With dependents, it also unloads the models that were loaded only for it.
func (c *HTTP) Unload(ctx context.Context, model string, dependents bool) error {
	body := map[string]any{"parameters": map[string]bool{"unload_dependents": dependents}}
	return c.post(ctx, "/v2/repository/models/"+url.PathEscape(model)+"/unload", body, nil)
}

// Config returns the completed configuration of a model.
func (c *HTTP) Config(ctx context.Context, model string) (*modelconfig.ModelConfig, error) {
	var text json.RawMessage
	if err := c.get(ctx, modelPath(model, "")+"/config", &text); err != nil {
		return nil, err
	}
	return config.ParseJSON(string(text))
}

// Index lists the models of the server's repositories.
func (c *GRPC) Index(ctx context.Context) ([]infer.Entry, error) {
	a, err := c.stub.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if err != nil {
		return nil, rpcError(err)
	}
	list := make([]infer.Entry, len(a.GetModels()))
	for i, m := range a.GetModels() {
		list[i] = infer.Entry{Name: m.GetName(), Version: m.GetVersion(), State: infer.State(m.GetState()), Reason: m.GetReason()}
	}
	return list, nil
}

// Load loads a model, and returns when it is ready or has failed to load.
func (c *GRPC) Load(ctx context.Context, model string) error {
	_, err := c.stub.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: model})
	return rpcError(err)
}

// Unload unloads a model. With dependents, it also unloads the models that were loaded only for it.
func (c *GRPC) Unload(ctx context.Context, model string, dependents bool) error {
	_, err := c.stub.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{
		ModelName: model, Parameters: map[string]*inference.ModelRepositoryParameter{
			"unload_dependents": {ParameterChoice: &inference.ModelRepositoryParameter_BoolParam{BoolParam: dependents}},
		},
	})
	return rpcError(err)
}

// Config returns the completed configuration of a model.
func (c *GRPC) Config(ctx context.Context, model string) (*modelconfig.ModelConfig, error) {
	a, err := c.stub.ModelConfig(ctx, &inference.ModelConfigRequest{Name: model})
	return a.GetConfig(), rpcError(err)
}
