//go:build cgo

package tutti_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/proto/inference"
)

// regionTensor is an input or a requested output: in a region, or plain.
type regionTensor struct {
	name, dtype string
	shape       []int64
	region      string
	off, size   int
	data        []byte // of a plain input
}

// regionDoor is one of the two protocols.
type regionDoor interface {
	register(name string, handle []byte, device int64, size uint64) error
	unregister(name string) error
	// regions returns device and size of the registered ones.
	regions() map[string][2]int64
	// infer returns the data of the plain outputs.
	infer(model string, in, out []regionTensor, params map[string]any) (map[string][]byte, error)
}

type httpDoor struct {
	tb  testing.TB
	url string
}

func (d httpDoor) call(method, path string, body []byte, header ...string) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(d.tb.Context(), method, d.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, b)
	}
	return b, resp.Header, err
}

func (d httpDoor) register(name string, handle []byte, device int64, size uint64) error {
	body := fmt.Sprintf(`{"raw_handle":{"b64":%q},"device_id":%d,"byte_size":%d}`, base64.StdEncoding.EncodeToString(handle), device, size)
	_, _, err := d.call("POST", "/v2/cudasharedmemory/region/"+name+"/register", []byte(body))
	return err
}

func (d httpDoor) unregister(name string) error {
	path := "/v2/cudasharedmemory/unregister"
	if name != "" {
		path = "/v2/cudasharedmemory/region/" + name + "/unregister"
	}
	_, _, err := d.call("POST", path, nil)
	return err
}

func (d httpDoor) regions() map[string][2]int64 {
	d.tb.Helper()
	b, _, err := d.call("GET", "/v2/cudasharedmemory/status", nil)
	var list []struct {
		Name   string `json:"name"`
		Device int64  `json:"device_id"`
		Size   int64  `json:"byte_size"`
	}
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		d.tb.Fatal(err)
	}
	all := map[string][2]int64{}
	for _, r := range list {
		all[r.Name] = [2]int64{r.Device, r.Size}
	}
	return all
}

func (t *regionTensor) json(output bool) map[string]any {
	params := map[string]any{}
	switch {
	case t.region != "":
		params["shared_memory_region"], params["shared_memory_byte_size"] = t.region, t.size
		if t.off > 0 {
			params["shared_memory_offset"] = t.off
		}
	case output:
		params["binary_data"] = true
	default:
		params["binary_data_size"] = len(t.data)
	}
	m := map[string]any{"name": t.name, "parameters": params}
	if !output {
		m["datatype"], m["shape"] = t.dtype, t.shape
	}
	return m
}

func (d httpDoor) infer(model string, in, out []regionTensor, params map[string]any) (map[string][]byte, error) {
	doc := map[string]any{}
	if params != nil {
		doc["parameters"] = params
	}
	var list, wanted []any
	var tail []byte
	for i := range in {
		list = append(list, in[i].json(false))
		tail = append(tail, in[i].data...)
	}
	for i := range out {
		wanted = append(wanted, out[i].json(true))
	}
	doc["inputs"] = list
	if wanted != nil {
		doc["outputs"] = wanted
	}
	head, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	b, h, err := d.call("POST", "/v2/models/"+model+"/infer", append(head, tail...), "Inference-Header-Content-Length", strconv.Itoa(len(head)))
	if err != nil {
		return nil, err
	}
	n := len(b)
	if v := h.Get("Inference-Header-Content-Length"); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil {
			return nil, err
		}
	}
	var resp struct {
		Outputs []struct {
			Name       string
			Parameters struct {
				Size int `json:"binary_data_size"`
			}
		}
	}
	if err := json.Unmarshal(b[:n], &resp); err != nil {
		return nil, err
	}
	got := map[string][]byte{}
	for _, o := range resp.Outputs {
		got[o.Name] = b[n : n+o.Parameters.Size]
		n += o.Parameters.Size
	}
	return got, nil
}

type grpcDoor struct {
	tb     testing.TB
	client inference.GRPCInferenceServiceClient
	stream bool // infer by ModelStreamInfer
}

func newGRPCDoor(tb testing.TB, address string, stream bool) grpcDoor {
	tb.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return grpcDoor{tb: tb, client: inference.NewGRPCInferenceServiceClient(conn), stream: stream}
}

func (d grpcDoor) register(name string, handle []byte, device int64, size uint64) error {
	_, err := d.client.CudaSharedMemoryRegister(d.tb.Context(), &inference.CudaSharedMemoryRegisterRequest{
		Name: name, RawHandle: handle, DeviceId: device, ByteSize: size,
	})
	return err
}

func (d grpcDoor) unregister(name string) error {
	_, err := d.client.CudaSharedMemoryUnregister(d.tb.Context(), &inference.CudaSharedMemoryUnregisterRequest{Name: name})
	return err
}

func (d grpcDoor) regions() map[string][2]int64 {
	d.tb.Helper()
	resp, err := d.client.CudaSharedMemoryStatus(d.tb.Context(), &inference.CudaSharedMemoryStatusRequest{})
	if err != nil {
		d.tb.Fatal(err)
	}
	all := map[string][2]int64{}
	for name, r := range resp.GetRegions() {
		all[name] = [2]int64{int64(r.GetDeviceId()), int64(r.GetByteSize())}
	}
	return all
}

func grpcParam(v any) *inference.InferParameter {
	switch v := v.(type) {
	case string:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}
	case bool:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: v}}
	default:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(v.(int))}}
	}
}

func (t *regionTensor) params() map[string]*inference.InferParameter {
	if t.region == "" {
		return nil
	}
	p := map[string]*inference.InferParameter{"shared_memory_region": grpcParam(t.region), "shared_memory_byte_size": grpcParam(t.size)}
	if t.off > 0 {
		p["shared_memory_offset"] = grpcParam(t.off)
	}
	return p
}

func (d grpcDoor) infer(model string, in, out []regionTensor, params map[string]any) (map[string][]byte, error) {
	req := &inference.ModelInferRequest{ModelName: model, Parameters: map[string]*inference.InferParameter{}}
	for k, v := range params {
		req.Parameters[k] = grpcParam(v)
	}
	for i := range in {
		req.Inputs = append(req.Inputs, &inference.ModelInferRequest_InferInputTensor{
			Name: in[i].name, Datatype: in[i].dtype, Shape: in[i].shape, Parameters: in[i].params(),
		})
		if in[i].region == "" {
			req.RawInputContents = append(req.RawInputContents, in[i].data)
		}
	}
	for i := range out {
		req.Outputs = append(req.Outputs, &inference.ModelInferRequest_InferRequestedOutputTensor{Name: out[i].name, Parameters: out[i].params()})
	}
	resp, err := d.send(req)
	if err != nil {
		return nil, err
	}
	got := map[string][]byte{}
	for i, o := range resp.GetOutputs() {
		got[o.GetName()] = nil
		if i < len(resp.GetRawOutputContents()) {
			got[o.GetName()] = resp.GetRawOutputContents()[i]
		}
	}
	return got, nil
}

func (d grpcDoor) send(req *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	if !d.stream {
		return d.client.ModelInfer(d.tb.Context(), req)
	}
	s, err := d.client.ModelStreamInfer(d.tb.Context())
	if err != nil {
		return nil, err
	}
	if err := s.Send(req); err != nil {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	resp, err := s.Recv()
	if err == nil && resp.GetErrorMessage() != "" {
		err = fmt.Errorf("%s", resp.GetErrorMessage())
	}
	return resp.GetInferResponse(), err
}
