package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/proto/inference"
)

const (
	smallSize = 1 << 20   // from this size on, a request's fixed cost is below 2 %
	wholeSize = 100 << 20 // the total size of the requests of one round
	roundSize = 4 * wholeSize
)

// growthBytes compares the cost of a byte in requests of 1 MB, 10 MB and 100 MB. Clients send the same 100 MB for
// every size, so small requests do not gain from the CPU's cache on the client's side. The server's memory may
// still be cached.
func (b *bench) growthBytes() (err error) {
	p, err := b.serveAs([]string{"--http-max-input-size=1073741824", "--allow-client-shm=true"}, identities)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	var errs []error
	for _, way := range []struct {
		name string
		send func(p *process, size, calls int) (time.Duration, error)
	}{
		{"HTTP binary", sendBinary},
		{"HTTP JSON", sendJSON},
		{"gRPC", sendGRPC},
		{"shared memory", sendShared},
	} {
		if err := b.bytes(p, way.name, way.send); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", way.name, err))
		}
	}
	return errors.Join(errs...)
}

func (b *bench) bytes(p *process, name string, send func(p *process, size, calls int) (time.Duration, error)) error {
	sizes := []int{smallSize, 10 * smallSize, 100 * smallSize}
	costs := make([][]float64, len(sizes))
	for round := range b.rounds + 1 {
		for i, size := range sizes {
			d, err := send(p, size, roundSize/size)
			if err != nil {
				return err
			}
			if round > 0 {
				costs[i] = append(costs[i], d.Seconds()*1e9/float64(size))
			}
		}
	}
	var errs []error
	for i := range sizes[1:] {
		errs = append(errs, b.printRatio(fmt.Sprintf("%s, %d MB against 1 MB: CPU per byte", name, sizes[i+1]>>20), "ns", costs[0], costs[i+1]))
	}
	return errors.Join(errs...)
}

func sendBinary(p *process, size, calls int) (time.Duration, error) {
	return sendBinaryTo(p, "fp32", size, calls)
}

// sendBinaryTo sends tensors of size bytes to the given model.
func sendBinaryTo(p *process, model string, size, calls int) (time.Duration, error) {
	list := make([][]byte, wholeSize/size)
	for i := range list {
		list[i] = binaryInfer(model, size/4)
	}
	return p.cpuPerRequest(list, calls)
}

// sendJSON sends requests of about size bytes as JSON.
func sendJSON(p *process, size, calls int) (time.Duration, error) {
	const value = "0.3712,"
	n := size / len(value)
	head := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"data":[`, n)
	body := head + strings.Repeat(value, n-1) + "0.3712]}]}"
	request := fmt.Sprintf("POST /v2/models/fp32/infer HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body)) + body
	list := make([][]byte, wholeSize/size)
	for i := range list {
		list[i] = []byte(request)
	}
	return p.cpuPerRequest(list, max(calls/4, 2))
}

// sendGRPC sends one message after another.
func sendGRPC(p *process, size, calls int) (time.Duration, error) {
	c, err := dialLarge(p.GRPC)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	client, list := inference.NewGRPCInferenceServiceClient(c), make([]*inference.ModelInferRequest, wholeSize/size)
	for i := range list {
		list[i] = largeRequest(size)
	}
	if _, err := client.ModelInfer(context.Background(), list[0]); err != nil { // as in spent
		return 0, err
	}
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	for i := range calls {
		if _, err := client.ModelInfer(context.Background(), list[i%len(list)]); err != nil {
			return 0, err
		}
	}
	after, err := p.CPU()
	return (after - before) / time.Duration(calls), err
}

func dialLarge(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
}

func largeRequest(size int) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: "fp32", RawInputContents: [][]byte{make([]byte, size)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: []int64{int64(size / 4)}}},
	}
}

// sendShared makes the server read its input from shared memory and write its output there.
func sendShared(p *process, size, calls int) (time.Duration, error) {
	return sendSharedTo(p, "fp32", size, calls)
}

// sendSharedTo does the same with the given model.
func sendSharedTo(p *process, model string, size, calls int) (time.Duration, error) {
	name := fmt.Sprintf("bench-growth-%d-%d", os.Getpid(), size)
	path := "/dev/shm/" + name
	if err := os.WriteFile(path, make([]byte, 2*wholeSize), 0o600); err != nil {
		return 0, err
	}
	defer os.Remove(path)
	if err := postJSON(p, "/v2/systemsharedmemory/region/growth/register", fmt.Sprintf(`{"key":"/%s","offset":0,"byte_size":%d}`, name, 2*wholeSize)); err != nil {
		return 0, err
	}
	const place = `"parameters":{"shared_memory_region":"growth","shared_memory_byte_size":%d,"shared_memory_offset":%d}`
	list := make([][]byte, wholeSize/size)
	for i := range list {
		body := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],`+place+`}],"outputs":[{"name":"OUTPUT0",`+place+`}]}`,
			size/4, size, i*size, size, wholeSize+i*size)
		list[i] = fmt.Appendf(nil, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", model, len(body), body)
	}
	spent, err := p.cpuPerRequest(list, calls)
	return spent, errors.Join(err, postJSON(p, "/v2/systemsharedmemory/region/growth/unregister", "{}"))
}

func postJSON(p *process, path, body string) error {
	resp, err := http.Post("http://"+p.HTTP+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// cpuPerRequest sends n requests in turn over one connection and returns the server's CPU time for each. Unlike
// load, it discards the responses.
func (p *process) cpuPerRequest(requests [][]byte, n int) (time.Duration, error) {
	conn, err := net.Dial("tcp", p.HTTP)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 256<<10)
	if err := discard(conn, r, requests[0]); err != nil { // memory is there from now on
		return 0, err
	}
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	for i := range n {
		if err := discard(conn, r, requests[i%len(requests)]); err != nil {
			return 0, err
		}
	}
	after, err := p.CPU()
	return (after - before) / time.Duration(n), err
}

// discard sends a request, then reads and discards its response.
func discard(conn net.Conn, r *bufio.Reader, request []byte) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
