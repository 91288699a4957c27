package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
)

// GenerateRequest is a request of the generate extension: inputs by name, as plain JSON values, without types and shapes.
type GenerateRequest struct {
	Model string
	// Version is the requested version; empty for the server's choice.
	Version string
	// Inputs has a value, or a list of values, for each input. For example: {"TEXT": "a prompt", "MAX_TOKENS": 32}.
	Inputs map[string]any
	// Parameters are those of Request.
	Parameters map[string]any
}

// Generated is a response of the generate extension.
type Generated struct {
	Model, Version string
	// Outputs has the JSON of each output: a value, or a list of values.
	Outputs map[string]json.RawMessage
}

// Decode decodes an output. For example: into a *string, or a *[]float32.
func (g *Generated) Decode(output string, to any) error {
	raw, ok := g.Outputs[output]
	if !ok {
		return fmt.Errorf("the response of model '%s' has no output '%s'", g.Model, output)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("output '%s' of model '%s': %w", output, g.Model, err)
	}
	return nil
}

// newGenerate returns the HTTP request for one of the paths of the extension.
func (c *HTTP) newGenerate(ctx context.Context, req *GenerateRequest, path string) (*http.Request, error) {
	body := maps.Clone(req.Inputs)
	if body == nil {
		body = map[string]any{}
	}
	if len(req.Parameters) > 0 {
		body["parameters"] = req.Parameters
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("the inputs cannot be written as JSON: %w", err)
	}
	return http.NewRequestWithContext(ctx, http.MethodPost, c.url+modelPath(req.Model, req.Version)+path, bytes.NewReader(text))
}

// Generate sends a request to a model with one response.
func (c *HTTP) Generate(ctx context.Context, req *GenerateRequest) (*Generated, error) {
	hr, err := c.newGenerate(ctx, req, "/generate")
	if err != nil {
		return nil, err
	}
	r, err := c.send(hr, true)
	if err != nil {
		return nil, err
	}
	return parseGenerated(r.body)
}

// GenerateStream sends a request to a model with any number of responses, and calls each with every response as it comes. It returns
// after the last one, or with the first error of each.
func (c *HTTP) GenerateStream(ctx context.Context, req *GenerateRequest, each func(*Generated) error) (err error) {
	hr, err := c.newGenerate(ctx, req, "/generate_stream")
	if err != nil {
		return err
	}
	resp, err := c.http.Do(hr)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return newError(resp, body)
	}
	return events(resp.Body, func(data []byte) error {
		g, err := parseGenerated(data)
		if err != nil {
			return err
		}
		return each(g)
	})
}

// parseGenerated decodes a response, or the error in its place.
func parseGenerated(data []byte) (*Generated, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("the response is not JSON: %w", err)
	}
	text := func(key string) (s string) {
		_ = json.Unmarshal(all[key], &s)
		delete(all, key)
		return s
	}
	if _, failed := all["error"]; failed && all["model_name"] == nil {
		e, body := &Error{Status: "error"}, errorBody{}
		if json.Unmarshal(data, &body) == nil && body.Error != nil {
			body.explain(e)
		}
		return nil, e
	}
	g := &Generated{Model: text("model_name"), Version: text("model_version")}
	g.Outputs = all
	return g, nil
}

// events calls each with the data of every server-sent event.
func events(r io.Reader, each func(data []byte) error) error {
	lines := bufio.NewReader(r)
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
		}
		if (len(line) == 0 || errors.Is(err, io.EOF)) && data != nil { // a blank line ends an event
			if err := each(data); err != nil {
				return err
			}
			data = nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
