package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Events is HTTP with server-sent events (generate_stream), for models that send any number of responses to a request. It is not among
// Protocols.
const Events = "sse"

// eventReader is a client over HTTP whose responses are server-sent events, each with one line of data.
type eventReader struct {
	*HTTP
	n     int
	first time.Time
	seen  int    // the bytes of the body whose lines were read
	data  []byte // of the last event
}

var _ Streaming = (*eventReader)(nil)

// events opens n clients.
func (g *Group) events(t *Target, requests []Request, n int) error {
	messages, err := encoded(requests, (*Request).Generate)
	if err != nil {
		return err
	}
	for i := range messages {
		messages[i] = t.address(messages[i])
	}
	for range n {
		c := &eventReader{HTTP: t.client(messages)}
		c.arrived = c.read
		g.Clients = append(g.Clients, c)
	}
	return nil
}

// Do sends a request and reads its events. An event with an error ends them.
func (c *eventReader) Do(i int) error {
	c.n, c.first, c.seen, c.data = 0, time.Time{}, 0, nil
	err := c.HTTP.Do(i)
	refused, ok := err.(*ResponseError) //nolint:errorlint // HTTP.Do returns it as it is
	if err != nil && !ok {
		return err
	}
	c.read() // of a body without chunks
	var event struct {
		Error *string `json:"error"`
	}
	failed := bytes.HasPrefix(c.data, []byte(`{"error"`)) && json.Unmarshal(c.data, &event) == nil && event.Error != nil
	switch {
	case failed:
		c.n--
		text := *event.Error
		code := ""
		if ok {
			code = refused.Code
		}
		return &ResponseError{code, text[:min(len(text), refusalText)]}
	case ok:
		return refused
	}
	return nil
}

// read counts the events of the lines that have come.
func (c *eventReader) read() {
	for {
		end := bytes.IndexByte(c.body[c.seen:], '\n')
		if end < 0 {
			return
		}
		line := c.body[c.seen : c.seen+end]
		c.seen += end + 1
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		if c.n++; c.n == 1 {
			c.first = time.Now()
		}
		c.data = bytes.TrimSpace(data)
	}
}

// Responses returns the number of responses to the last request, and when the first one came.
func (c *eventReader) Responses() (int, time.Time) { return c.n, c.first }

// Outputs decodes the last response. Its outputs have neither types nor shapes.
func (c *eventReader) Outputs() ([]Output, error) {
	if c.n == 0 {
		return nil, errors.New("the last request has no response with outputs")
	}
	var members map[string]any
	if err := json.Unmarshal(c.data, &members); err != nil {
		return nil, fmt.Errorf("the event is not JSON: %w", err)
	}
	var all []Output
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == "model_name" || name == "model_version" || name == "id" {
			continue
		}
		out := Output{Name: name}
		if err := out.flatten(members[name]); err != nil {
			return nil, fmt.Errorf("output '%s': %w", name, err)
		}
		all = append(all, out)
	}
	return all, nil
}

// Generate encodes the request as a whole HTTP message to generate_stream: a JSON object with a value or a list for each input, which the
// server gives the shape of the model's input. Its responses have all outputs.
func (r *Request) Generate() ([]byte, error) {
	body := map[string]any{}
	for i := range r.Inputs {
		t := &r.Inputs[i]
		long := slices.DeleteFunc(slices.Clone(t.Shape), func(n int64) bool { return n == 1 })
		if len(long) > 1 {
			return nil, fmt.Errorf("input '%s' has the shape %v, and generate_stream takes values and lists only: measure the model over gRPC", t.Name, t.Shape)
		}
		in, err := t.json()
		if err != nil {
			return nil, err
		}
		if in.Parameters != nil {
			return nil, fmt.Errorf("input '%s' has bytes that are not text in UTF-8, which generate_stream does not take: measure the model over gRPC", t.Name)
		}
		body[t.Name] = in.Data
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return post(r.modelPath()+"/generate_stream", "application/json", "", text), nil
}
