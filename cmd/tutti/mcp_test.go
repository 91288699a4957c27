package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tutti-server/tutti/cmd"
)

// pairs is a model of the backend identity whose inputs and outputs have these types and dims.
func pairs(more string, ports ...string) string {
	var b strings.Builder
	b.WriteString(`backend: "identity" ` + more)
	for i, p := range ports {
		fmt.Fprintf(&b, ` input { name: "INPUT%d" %s } output { name: "OUTPUT%d" %s }`, i, p, i, p)
	}
	return b.String()
}

// param is a parameter in a configuration.
func param(key, value string) string {
	return fmt.Sprintf(` parameters { key: %q value { string_value: %q } }`, key, value)
}

const repeatPorts = ` input [{ name: "IN" data_type: TYPE_INT32 dims: -1 }, { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }, { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }] `

// toolModels are models that are tools, and "plain", which is none.
func toolModels() map[string]string {
	about := param("api.tool", "Gives its arguments back.")
	return map[string]string{
		"plain": pairs("", "data_type: TYPE_STRING dims: 1"),
		"text":  pairs("max_batch_size: 4"+about+param("api.tool.about.INPUT0", "a text"), "data_type: TYPE_STRING dims: 1"),
		"file":  pairs("max_batch_size: 4"+about+param("api.tool.binary", "INPUT0"), "data_type: TYPE_STRING dims: 1"),
		"types": pairs("max_batch_size: 4"+about, "data_type: TYPE_BOOL dims: 1", "data_type: TYPE_UINT8 dims: [2, 2]", "data_type: TYPE_INT64 dims: -1",
			"data_type: TYPE_FP16 dims: 2", "data_type: TYPE_FP32 dims: [-1, 2]", "data_type: TYPE_FP64 dims: 1", "data_type: TYPE_STRING dims: -1", "data_type: TYPE_BF16 dims: 1"),
		"scalar": pairs(about, "data_type: TYPE_INT8 dims: 1"),
		"repeat": `backend: "repeat" model_transaction_policy { decoupled: true }` + about,
		"build":  `backend: "native"` + param("step", "json_build") + ` input { name: "n" data_type: TYPE_INT32 dims: 1 } output { name: "JSON" data_type: TYPE_STRING dims: 1 }`,
		"tokens": `platform: "ensemble" model_transaction_policy { decoupled: true }` + about + repeatPorts + ` output { name: "JSON" data_type: TYPE_STRING dims: 1 }
			ensemble_scheduling { step { model_name: "repeat" model_version: -1 input_map { key: "IN" value: "IN" } input_map { key: "DELAY" value: "DELAY" }
			input_map { key: "WAIT" value: "WAIT" } output_map { key: "OUT" value: "n" } }
			step { model_name: "build" model_version: -1 input_map { key: "n" value: "n" } output_map { key: "JSON" value: "JSON" } } }`,
	}
}

// toolSession connects the SDK's client to a server.
func toolSession(t *testing.T, a addresses, header http.Header) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + a.http + "/mcp", HTTPClient: &http.Client{Transport: headers{header}}, MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// headers is a transport that adds a header to each request.
type headers struct{ http.Header }

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	maps.Copy(r.Header, h.Header)
	return http.DefaultTransport.RoundTrip(r)
}

// toolList returns all tools by name, and the number of pages.
func toolList(t *testing.T, s *mcp.ClientSession) (tools map[string]*mcp.Tool, pages int) {
	t.Helper()
	tools = map[string]*mcp.Tool{}
	for p := new(mcp.ListToolsParams); ; {
		res, err := s.ListTools(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, tool := range res.Tools {
			tools[tool.Name] = tool
		}
		if p.Cursor = res.NextCursor; p.Cursor == "" {
			return tools, pages
		}
	}
}

// callTool calls a tool with arguments in JSON.
func callTool(t *testing.T, s *mcp.ClientSession, name, arguments string) (*mcp.CallToolResult, error) {
	t.Helper()
	return s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
}

// textOf returns the text of a result.
func textOf(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) == 0 {
		t.Fatal("the result has no content")
	}
	text, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("content 0 is %T, expected text", res.Content[0])
	}
	return text.Text
}

// validate checks the structured content of a result against the schema of its tool.
func validate(t *testing.T, tool *mcp.Tool, res *mcp.CallToolResult) {
	t.Helper()
	b, err := json.Marshal(tool.OutputSchema)
	if err != nil {
		t.Fatal(err)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(res.StructuredContent); err != nil {
		t.Errorf("tool %s: the result %v does not match its schema %s: %v", tool.Name, res.StructuredContent, b, err)
	}
}

// TestTools lists and calls tools of all kinds with the SDK's client.
func TestTools(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+models(t, toolModels()), "--mcp=true")
	s := toolSession(t, a, nil)
	tools, _ := toolList(t, s)
	if got, want := slices.Sorted(maps.Keys(tools)), []string{"file", "repeat", "scalar", "text", "tokens", "types"}; !slices.Equal(got, want) {
		t.Fatalf("the tools are %v, want %v", got, want)
	}
	b, err := json.Marshal(tools["text"])
	const want = `{"annotations":{"idempotentHint":false,"openWorldHint":false,"readOnlyHint":true},"description":"Gives its arguments back.",` +
		`"inputSchema":{"additionalProperties":false,"properties":{"INPUT0":{"description":"a text","type":"string"}},"required":["INPUT0"],"type":"object"},` +
		`"name":"text","outputSchema":{"properties":{"OUTPUT0":{"type":"string"}},"type":"object"}}`
	if err != nil || string(b) != want {
		t.Errorf("the tool is %s (%v), want %s", b, err, want)
	}
	for _, tt := range []struct{ tool, arguments, structured, text string }{
		{"text", `{"INPUT0":"héllo \"you\""}`, `{"OUTPUT0":"héllo \"you\""}`, ""},
		{"text", `{"INPUT0":"BMW GIF89"}`, `{"OUTPUT0":"BMW GIF89"}`, ""},
		{"file", `{"INPUT0":"AAECgP8="}`, `{"OUTPUT0":"data:application/octet-stream;base64,AAECgP8="}`, ""},
		{"file", `{"INPUT0":"AAECgP8"}`, `{"OUTPUT0":"data:application/octet-stream;base64,AAECgP8="}`, ""},
		{"file", `{"INPUT0":""}`, `{"OUTPUT0":""}`, ""},
		{"scalar", `{"INPUT0":-7}`, `{"OUTPUT0":-7}`, ""},
		{
			"types", `{"INPUT0":true,"INPUT1":[[1,2],[3,255]],"INPUT2":[9007199254740993,-1],"INPUT3":[0.5,-1e9],"INPUT4":[[0.1,1e30],[3,-4]],"INPUT5":1e300,"INPUT6":["a",""],"INPUT7":1.5}`,
			`{"OUTPUT0":true,"OUTPUT1":[[1,2],[3,255]],"OUTPUT2":[9007199254740993,-1],"OUTPUT3":[0.5,null],"OUTPUT4":[[0.1,1e30],[3,-4]],"OUTPUT5":1e300,"OUTPUT6":["a",""],"OUTPUT7":1.5}`, "",
		},
		{"repeat", `{"IN":[4,5],"DELAY":[0,0],"WAIT":0}`, `{"responses":[{"OUT":4,"IDX":0},{"OUT":5,"IDX":1}]}`, ""},
		{"repeat", `{"IN":[],"DELAY":[],"WAIT":0}`, `{"responses":[]}`, ""},
		{"tokens", `{"IN":[4,5],"DELAY":[0,0],"WAIT":0}`, `{"responses":[{"JSON":"{\"n\":4}"},{"JSON":"{\"n\":5}"}]}`, `{"n":4}{"n":5}`},
	} {
		res, err := callTool(t, s, tt.tool, tt.arguments)
		if err != nil || res.IsError {
			t.Errorf("%s %s: %v %v", tt.tool, tt.arguments, err, res)
			continue
		}
		var want any
		if err := json.Unmarshal([]byte(tt.structured), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, res.StructuredContent); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.tool, tt.arguments, diff)
		}
		if text := textOf(t, res); tt.text != "" && text != tt.text {
			t.Errorf("%s %s: the text is %q, want %q", tt.tool, tt.arguments, text, tt.text)
		} else if tt.text == "" {
			var got any
			if err := json.Unmarshal([]byte(text), &got); err != nil || !cmp.Equal(want, got) {
				t.Errorf("%s %s: the text is %q, want %s", tt.tool, tt.arguments, text, tt.structured)
			}
		}
		validate(t, tools[tt.tool], res)
	}
}

// TestToolImages checks that clients get an output that is an image as an image, and not as text.
func TestToolImages(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	s := toolSession(t, serve(t, "--model-repository="+models(t, toolModels()), "--mcp=true"), nil)
	res, err := callTool(t, s, "file", `{"INPUT0":"`+base64.StdEncoding.EncodeToString(b.Bytes())+`"}`)
	if err != nil || res.IsError || len(res.Content) != 2 {
		t.Fatalf("%v %v", err, res)
	}
	if got, want := textOf(t, res), fmt.Sprintf(`{"OUTPUT0":"(image/png of %d bytes: content 1)"}`, b.Len()); got != want {
		t.Errorf("the text is %s, want %s", got, want)
	}
	if c, ok := res.Content[1].(*mcp.ImageContent); !ok || c.MIMEType != "image/png" || !bytes.Equal(c.Data, b.Bytes()) {
		t.Errorf("content 1 is %v, want the image", res.Content[1])
	}
}

// TestToolFaults checks what wrong calls are told, and that the server serves the next one.
func TestToolFaults(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+models(t, toolModels()), "--mcp=true", "--http-max-input-size=16777216")
	s := toolSession(t, a, nil)
	long := strings.Repeat("x", 10<<20)
	for _, tt := range []struct{ tool, arguments, want string }{
		{"text", `{}`, "the argument 'INPUT0' is missing, expected a string"},
		{"text", `{"INPUT0":5}`, "the argument 'INPUT0' has a number, expected a string"},
		{"text", `{"INPUT0":["a"]}`, "the argument 'INPUT0' has an array, expected a string"},
		{"text", `{"INPUT0":null}`, "the argument 'INPUT0' has null, expected a string"},
		{"text", `{"INPUT0":"a","INPUT9":1}`, "there is no argument 'INPUT9', expected 'INPUT0'"},
		{"text", `{"INPUT0":"a","INPUT0":"b"}`, "the argument 'INPUT0' is there twice"},
		{"text", `["a"]`, "the arguments are an array, expected an object with 'INPUT0'"},
		{"file", `{"INPUT0":"no base64!"}`, "the argument 'INPUT0' has a string that is no base64, expected a string in base64"},
		{"scalar", `{"INPUT0":1.5}`, "the argument 'INPUT0' has the number 1.5, expected an integer"},
		{"scalar", `{"INPUT0":300}`, "value 300 of input 'INPUT0' is out of range for INT8"},
		{"scalar", `{"INPUT0":"7"}`, "the argument 'INPUT0' has a string, expected an integer"},
		{"types", `{"INPUT1":[[1,2],[3]]}`, "the argument 'INPUT1' has an array of 1 elements in its dimension 2, expected 2"},
		{"types", `{"INPUT1":[[1,2],[3,-4]]}`, "the argument 'INPUT1' has the number -4, expected arrays of integers with the dimensions [2,2]"},
		{"types", `{"INPUT4":[[1,2],3]}`, "the argument 'INPUT4' has a number, expected arrays of numbers with the dimensions [-1,2]"},
		{"types", `{"INPUT1":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "the argument 'INPUT1'"},
		{"repeat", `{"IN":[1],"DELAY":[],"WAIT":0}`, "DELAY"},
	} {
		res, err := callTool(t, s, tt.tool, tt.arguments)
		if err != nil {
			t.Errorf("%s %.200s: %v", tt.tool, tt.arguments, err)
			continue
		}
		text := textOf(t, res)
		if !res.IsError || !strings.Contains(text, tt.want) || !strings.Contains(text, "\nreason: INVALID_ARGUMENT; correct the arguments") {
			t.Errorf("%s %.200s: %q, want an error with %q", tt.tool, tt.arguments, text, tt.want)
		}
	}
	if res, err := callTool(t, s, "text", `{"INPUT0":"`+long+`"}`); err != nil || res.IsError || !strings.Contains(textOf(t, res), long) {
		t.Errorf("a text of %d bytes: %v", len(long), err)
	}
	message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"text","arguments":{"INPUT0":"` + long + long + `"}}}`
	if code, text := postMessage(t, a, "/mcp", message, nil); code != http.StatusBadRequest || !strings.Contains(text, "exceeds the maximum allowed input size of 16777216 bytes") {
		t.Errorf("a text above the limit: %d %s", code, text)
	}
	for _, name := range []string{"plain", "nope", "../text"} {
		_, err := callTool(t, s, name, `{"INPUT0":"a"}`)
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("tool %q: %v, want invalid parameters", name, err)
		}
	}
	if _, err := s.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "!"}); err == nil || !strings.Contains(err.Error(), "the cursor '!' is not one of this server") {
		t.Errorf("a wrong cursor: %v", err)
	}
	if res, err := callTool(t, s, "text", `{"INPUT0":"still here"}`); err != nil || res.IsError {
		t.Errorf("%v %v", err, res)
	}
}

// TestManyTools checks the pages of the list.
func TestManyTools(t *testing.T) {
	t.Parallel()
	list := map[string]string{}
	for i := range 1000 {
		list[fmt.Sprintf("tool%04d", i)] = pairs(param("api.tool", "A tool."), "data_type: TYPE_STRING dims: 1")
	}
	s := toolSession(t, serve(t, "--model-repository="+models(t, list), "--mcp=true"), nil)
	if tools, pages := toolList(t, s); len(tools) != 1000 || pages != 10 {
		t.Errorf("%d tools in %d pages, want 1000 in 10", len(tools), pages)
	}
}

// TestToolsFollowModels checks that models which are loaded and unloaded are tools just then.
func TestToolsFollowModels(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+models(t, toolModels()), "--mcp=true", "--model-control-mode=explicit")
	s := toolSession(t, a, nil)
	check := func(want ...string) {
		t.Helper()
		if tools, _ := toolList(t, s); !slices.Equal(slices.Sorted(maps.Keys(tools)), want) {
			t.Errorf("the tools are %v, want %v", slices.Sorted(maps.Keys(tools)), want)
		}
	}
	check()
	for _, what := range []string{"load", "unload"} {
		postMessage(t, a, "/v2/repository/models/text/"+what, "{}", nil)
		if what == "load" {
			check("text")
			continue
		}
		check()
		if _, err := callTool(t, s, "text", `{"INPUT0":"a"}`); err == nil || !strings.Contains(err.Error(), "there is no tool 'text'") {
			t.Errorf("an unloaded model: %v", err)
		}
	}
}

// postMessage sends a request and returns the status and the body. It may be called by any goroutine.
func postMessage(t *testing.T, a addresses, path, body string, h http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.http+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	maps.Copy(req.Header, h)
	if host := h.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

const listMessage = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// TestToolAccess checks that the endpoint is off by default, and that a client needs the permissions of inference requests.
func TestToolAccess(t *testing.T) {
	t.Parallel()
	root := models(t, map[string]string{
		"text-a":  pairs(param("api.tool", "A."), "data_type: TYPE_STRING dims: 1"),
		"image-b": pairs(param("api.tool", "B."), "data_type: TYPE_STRING dims: 1"),
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		if code, _ := postMessage(t, serve(t, "--model-repository="+root), "/mcp", listMessage, nil); code != http.StatusNotFound {
			t.Errorf("status %d, want 404", code)
		}
	})
	t.Run("sites", func(t *testing.T) {
		t.Parallel()
		a := serve(t, "--model-repository="+root, "--mcp=true", "--http-allowed-origin=https://tools.example")
		for _, tt := range []struct {
			origin, host string
			want         int
		}{
			{"", "", 200}, {"https://tools.example", "", 200}, {"https://evil.example", "", 403}, {"http://evil.example", "evil.example", 403}, {"", "gateway.example", 200},
		} {
			h := http.Header{}
			for name, value := range map[string]string{"Origin": tt.origin, "Host": tt.host} {
				if value != "" {
					h.Set(name, value)
				}
			}
			if code, body := postMessage(t, a, "/mcp", listMessage, h); code != tt.want {
				t.Errorf("origin %q, host %q: %d %s, want %d", tt.origin, tt.host, code, body, tt.want)
			}
		}
		resp, err := http.Get("http://" + a.http + "/mcp") //nolint:noctx // ends with the server
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET: %s, want 405", resp.Status)
		}
		for _, body := range []string{"", "{", "[]", "5", `{"jsonrpc":"2.0","id":1,"method":"nope"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":5}`, strings.Repeat("[", 100000)} {
			if code, text := postMessage(t, a, "/mcp", body, nil); code >= 500 || !strings.Contains(text, "error") && code < 400 {
				t.Errorf("body %.40q: %d %s, want an error of the client", body, code, text)
			}
		}
	})
	t.Run("restricted", func(t *testing.T) {
		t.Parallel()
		a := serve(t, "--model-repository="+root, "--mcp=true", "--http-restricted-api=inference:key=value", "--http-restricted-api=metadata:other=value")
		if code, _ := postMessage(t, a, "/mcp", listMessage, nil); code != http.StatusForbidden {
			t.Errorf("without the header: %d, want 403", code)
		}
		s := toolSession(t, a, http.Header{"Key": {"value"}})
		if _, err := s.ListTools(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "expecting header 'other'") {
			t.Errorf("without the header of metadata: %v", err)
		}
		if res, err := callTool(t, s, "text-a", `{"INPUT0":"a"}`); err != nil || res.IsError {
			t.Errorf("with the header: %v %v", err, res)
		}
	})
	t.Run("identities", func(t *testing.T) {
		t.Parallel()
		a := serve(t, "--model-repository="+root, "--mcp=true", "--auth-file="+authFile(t, authText))
		if code, _ := postMessage(t, a, "/mcp", listMessage, nil); code != http.StatusUnauthorized {
			t.Errorf("without a token: %d, want 401", code)
		}
		s := toolSession(t, a, http.Header{"Authorization": {"Bearer " + userToken}})
		if tools, _ := toolList(t, s); len(tools) != 1 || tools["text-a"] == nil {
			t.Errorf("the tools of a user are %v, want text-a", slices.Collect(maps.Keys(tools)))
		}
		if _, err := callTool(t, s, "image-b", `{"INPUT0":"a"}`); err == nil || !strings.Contains(err.Error(), "there is no tool 'image-b'") {
			t.Errorf("a model of others: %v", err)
		}
	})
}

// TestToolLimits checks that calls have deadlines and shares as other requests do, end when their client leaves, and are traced.
func TestToolLimits(t *testing.T) {
	t.Parallel()
	const slow = `{"IN":[1],"DELAY":[600000],"WAIT":0}`
	a := serveWith(t, cmd.Builtin(), "--model-repository="+models(t, toolModels()), "--mcp=true", "--client-key=header:X-Client")
	s := toolSession(t, a, http.Header{"Tutti-Timeout-Ms": {"0.000001"}, "X-Client": {"ada"}})
	res, err := callTool(t, s, "repeat", slow)
	if err != nil || !res.IsError || !strings.Contains(textOf(t, res), "reason: DEADLINE_") {
		t.Errorf("with a deadline: %v %v", err, res)
	}
	said, ok := res.Meta["tutti/error"].(map[string]any)
	if !ok || said["error"] == "" || said["reason"] == "" {
		t.Errorf("the _meta is %v, want the error for programs", res.Meta)
	}
	var list struct {
		Traces []struct{ ID, Error string }
	}
	dashboardAPI(t, a, "traces?model=repeat&limit=100", &list)
	if len(list.Traces) == 0 {
		t.Error("the failed call has no trace")
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	patient := toolSession(t, a, nil)
	go func() {
		_, err := patient.CallTool(ctx, &mcp.CallToolParams{Name: "repeat", Arguments: json.RawMessage(slow)})
		left <- err
	}()
	running := `ensemble_model_requests_running{model="repeat",version="1"} `
	for !strings.Contains(metricsOf(t, a), running+"1") {
	}
	cancel()
	if err := <-left; err == nil {
		t.Error("a call that was left: no error")
	}
	for !strings.Contains(metricsOf(t, a), running+"0") {
	}
}
