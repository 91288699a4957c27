package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// width is the number of elements of a row.
const width = 384

// textModels are the configurations of the models behind the routes of other servers.
var textModels = []string{
	`name: "embed" max_batch_size: 32
  input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
  output { name: "dense" data_type: TYPE_FP32 dims: 384 }
  output { name: "count" data_type: TYPE_INT64 dims: 1 }
  output { name: "vectors" data_type: TYPE_FP32 dims: 2 dims: 192 }
  output { name: "mask" data_type: TYPE_INT64 dims: 2 }
  parameters { key: "api.embeddings" value { string_value: "dense=dense sparse=dense multi_vector=vectors mask=mask tokens=count max_tokens=9 dimensions=any" } }`,
	`name: "ids" max_batch_size: 2
  input { name: "IDS" data_type: TYPE_INT32 dims: -1 }
  output { name: "dense" data_type: TYPE_FP32 dims: 384 }
  parameters { key: "api.embeddings" value { string_value: "ids=IDS default" } }`,
	`name: "pairs" max_batch_size: 3
  input { name: "QUERY" data_type: TYPE_STRING dims: 1 }
  input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
  output { name: "score" data_type: TYPE_FP32 dims: 1 }
  parameters { key: "api.rerank" value { string_value: "query=QUERY scores=logits" } }`,
	`name: "talk" max_batch_size: 1
  input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
  input { name: "max_tokens" data_type: TYPE_INT32 dims: 1 optional: true }
  output { name: "text" data_type: TYPE_STRING dims: 1 }
  model_transaction_policy { decoupled: true }
  parameters { key: "api.completions" value { string_value: "text=TEXT" } }`,
	`name: "tokens" max_batch_size: 8
  input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
  output { name: "ids" data_type: TYPE_INT64 dims: 2 }
  output { name: "offsets" data_type: TYPE_INT64 dims: 2 dims: 2 }
  parameters { key: "api.tokenize" value { string_value: "ids=ids offsets=offsets" } }`,
}

// texter serves textModels, with zeros for numbers. Texts of a response are those of the request. It fails rows that begin with "poison".
type texter struct {
	infer.Catalog

	alloc  tensor.Allocator
	models map[string]*modelconfig.ModelConfig
	descs  map[string]*infer.Description
	names  []string
}

func newTexter(tb testing.TB, alloc tensor.Allocator) *texter {
	tb.Helper()
	x := &texter{alloc: alloc, models: map[string]*modelconfig.ModelConfig{}, descs: map[string]*infer.Description{}}
	for _, text := range textModels {
		cfg := &modelconfig.ModelConfig{}
		if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
			tb.Fatal(err)
		}
		name := cfg.GetName()
		x.models[name], x.names = cfg, append(x.names, name)
		d := &infer.Description{Model: name, Version: 1, MaxBatch: int(cfg.GetMaxBatchSize()), Decoupled: cfg.GetModelTransactionPolicy().GetDecoupled()}
		for _, in := range cfg.GetInput() {
			d.Inputs = append(d.Inputs, infer.Port{Name: in.GetName(), DType: dtypes[in.GetDataType()], Shape: tensor.Of(in.GetDims()...).Prepend(-1), Optional: in.GetOptional()})
		}
		for _, out := range cfg.GetOutput() {
			d.Outputs = append(d.Outputs, infer.Port{Name: out.GetName(), DType: dtypes[out.GetDataType()], Shape: tensor.Of(out.GetDims()...).Prepend(-1)})
		}
		x.descs[name] = d
	}
	slices.Sort(x.names)
	return x
}

var dtypes = map[modelconfig.DataType]tensor.DType{
	modelconfig.DataType_TYPE_STRING: tensor.Bytes, modelconfig.DataType_TYPE_FP32: tensor.FP32,
	modelconfig.DataType_TYPE_INT64: tensor.Int64, modelconfig.DataType_TYPE_INT32: tensor.Int32,
}

func (*texter) Generation() uint64 { return 1 }
func (x *texter) Names() []string  { return x.names }
func (x *texter) Config(name string, _ int64) (*modelconfig.ModelConfig, error) {
	return x.models[name], nil
}

func (x *texter) Describe(name string, _ int64) (*infer.Description, error) {
	if d := x.descs[name]; d != nil {
		return d, nil
	}
	return nil, status.Errorf(status.NotFound, "'%s' is not found", name)
}

func (x *texter) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	d := x.descs[req.Model]
	if d.Decoupled {
		go x.stream(ctx, req, sink)
		return
	}
	resp, err := x.respond(d, req)
	req.Release()
	if resp != nil {
		sink.Send(resp)
	}
	sink.Close(err)
}

// stream responds three times with the text of the request.
func (x *texter) stream(ctx context.Context, req *infer.Request, sink infer.Sink) {
	defer req.Release()
	for range 3 {
		if p, ok := sink.(infer.Pacer); ok && p.Pace(ctx) != nil {
			break
		}
		resp, err := x.respond(x.descs[req.Model], req)
		if err != nil {
			sink.Close(err)
			return
		}
		sink.Send(resp)
	}
	sink.Close(ctx.Err())
}

func (x *texter) respond(d *infer.Description, req *infer.Request) (*infer.Response, error) {
	in := &req.Inputs[0].Tensor
	if in.DType == tensor.Bytes {
		for rest := in.Bytes(); len(rest) > 0; {
			var text []byte
			if text, rest, _ = tensor.NextBytes(rest); bytes.HasPrefix(text, []byte("poison")) {
				return nil, status.Reasonf(status.StepFailed, "the batch is poisoned")
			}
		}
	}
	resp := infer.NewResponse()
	resp.Model, resp.Version = req.Model, 1
	for i := range d.Outputs {
		out := &d.Outputs[i]
		if !slices.Contains(req.Outputs, out.Name) && len(req.Outputs) > 0 {
			continue
		}
		if out.DType == tensor.Bytes {
			resp.Outputs = append(resp.Outputs, infer.Named{Name: out.Name, Tensor: in.Retain()})
			continue
		}
		shape := out.Shape
		shape.SetDim(0, in.Shape.Dim(0))
		t, err := tensor.New(x.alloc, out.DType, shape)
		if err != nil {
			resp.Release()
			return nil, err
		}
		if out.DType == tensor.FP32 {
			for n, row := 0, tensor.Slice[float32](&t); n < len(row); n++ {
				row[n] = float32(n%width)*0.0371 - 7
			}
		} else {
			clear(t.Bytes())
		}
		resp.Outputs = append(resp.Outputs, infer.Named{Name: out.Name, Tensor: t})
	}
	return resp, nil
}

func textServer(tb testing.TB, alloc tensor.Allocator) *httpapi.Server {
	tb.Helper()
	x := newTexter(tb, alloc)
	return httpapi.New(httpapi.Settings{Infer: x, Catalog: x, Alloc: alloc, Log: slog.New(slog.DiscardHandler), MaxInput: 1 << 20})
}

var textRoutes = []string{"/v1/embeddings", "/v1/completions", "/v1/rerank", "/embed", "/embed_all", "/embed_sparse", "/rerank", "/tokenize"}

// FuzzTextAPI looks for bodies that crash or hang a route of another server, keep memory, or have a response that is no JSON.
func FuzzTextAPI(f *testing.F) {
	for _, s := range []string{
		`{"model":"embed","input":["a","b \u00e4","poison",""],"item_errors":true,"embedding_types":["dense","sparse","multi_vector"],"dimensions":3,"inputs":["x","y"],"truncate":true}`,
		`{"model":"ids","input":[[1,2],[3],[-4,5]],"encoding_format":"base64","user":{"a":[]},"inputs":[1,2]}`,
		`{"query":"q","documents":["a",{"text":"b","x":1}],"top_n":1,"return_documents":true,"texts":["a","b"],"return_text":true,"raw_scores":true}`,
		`{"prompt":["a","b"],"stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"temperature":0.5,"stop":[]}`,
		`{"prompt":"a\ud83d\ude00","max_tokens":[1],"n":1,"inputs":"\u00e4\ud83d\ude00","add_special_tokens":false,"input":5}`,
		`{"input":["a",[1]]}`, `{"input":[1,2`, `[]`, `{"input":"\xff"}`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s := textServer(t, tensortest.NewChecked(t, nil))
		for _, path := range textRoutes {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			checkText(t, w)
		}
	})
}

func checkText(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	response := w.Body.String()
	if w.Code == http.StatusInternalServerError && !strings.Contains(response, "STEP_FAILED") {
		t.Fatalf("an error of the server: %q", response)
	}
	if w.Header().Get("Content-Type") == "application/json" {
		if !json.Valid([]byte(response)) {
			t.Fatalf("the response is not JSON: %q", response)
		}
		return
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(response, "\n\n"), "\n\n") {
		if data, ok := strings.CutPrefix(event, "data: "); !ok || data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Fatalf("the event %q is not JSON", event)
		}
	}
}

// textRequests are the same request for the embedding of a text, by the v2 protocol and by the routes of other servers.
var textRequests = []struct{ name, path, body string }{
	{"v2", "/v2/models/embed/infer", `{"inputs":[{"name":"TEXT","shape":[1,1],"datatype":"BYTES","data":["why is the sky blue"]}],"outputs":[{"name":"dense"},{"name":"count"}]}`},
	{"openai", "/v1/embeddings", `{"model":"embed","input":"why is the sky blue","encoding_format":"float"}`},
	{"openai base64", "/v1/embeddings", `{"model":"embed","input":"why is the sky blue","encoding_format":"base64"}`},
	{"tei", "/rerank", `{"query":"why is the sky blue","texts":["it is not"]}`},
}

// TestTextAllocations bounds the allocations of a request on these routes.
func TestTextAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("pools drop at random under the race detector")
	}
	s := textServer(t, tensor.NewPool())
	for _, tt := range textRequests {
		body := new(rewind)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.path, nil)
		r.Body, r.ContentLength = body, int64(len(tt.body))
		w := &discard{header: http.Header{}}
		if got := testing.AllocsPerRun(200, func() {
			body.Reset([]byte(tt.body))
			s.ServeHTTP(w, r)
		}); got > 4 || w.n < 201*30 {
			t.Errorf("%s: %v allocations, want at most 4; %d bytes in responses", tt.name, got, w.n)
		}
	}
}

// BenchmarkText measures the routes of embeddings against the v2 protocol: everything but the model.
func BenchmarkText(b *testing.B) {
	s := textServer(b, tensor.NewPool())
	for _, bm := range textRequests {
		head := "POST " + bm.path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + strconv.Itoa(len(bm.body)) + "\r\n\r\n"
		b.Run(bm.name, func(b *testing.B) { benchmark(b, s, []byte(head+bm.body)) })
	}
	for _, bm := range textRequests {
		b.Run("handler "+bm.name, func(b *testing.B) {
			body := new(rewind)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, bm.path, io.NopCloser(body))
			r.Body, r.ContentLength = body, int64(len(bm.body))
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset([]byte(bm.body))
				s.ServeHTTP(w, r)
			}
		})
	}
}
