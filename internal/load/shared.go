package load

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	memoryDir = "/dev/shm"
	// defaultRoom is the space for each output of each client.
	defaultRoom = 64 << 10
)

// Region is system shared memory between the clients and the server. The inputs of all requests come first, then
// the outputs of each client.
type Region struct {
	name string
	mem  []byte
	room int // the space for each output of each client
}

// newRegion creates a region of the given size.
func newRegion(size int) (*Region, error) {
	name := "bench-" + strings.ToLower(rand.Text())
	f, err := os.OpenFile(filepath.Join(memoryDir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot map %d bytes: %w", size, err), os.Remove(f.Name()))
	}
	return &Region{name: name, mem: mem}, nil
}

func (r *Region) close() error {
	return errors.Join(unix.Munmap(r.mem), os.Remove(filepath.Join(memoryDir, r.name)))
}

// area is the part of a region that holds one client's outputs.
type area struct {
	region *Region
	at     int
	names  []string // of the outputs, each with its own room, in order
}

// read decodes an output. The response holds its shape; the lengths of BYTES elements are in the memory.
func (a *area) read(name, datatype string, shape []int64) (Output, error) {
	i := slices.Index(a.names, name)
	if i < 0 {
		return Output{}, errors.New("it was not requested")
	}
	elements := int64(1)
	room := a.region.room
	for _, d := range shape {
		if d < 0 || d > int64(room) {
			return Output{}, fmt.Errorf("unexpected shape %v", shape)
		}
		elements = min(elements*d, int64(room)+1)
	}
	raw := a.region.mem[a.at+i*room:][:room]
	n, err := extent(raw, datatype, int(elements))
	if err != nil {
		return Output{}, err
	}
	return decode(datatype, raw[:n])
}

// extent returns the number of bytes of the given elements.
func extent(raw []byte, datatype string, elements int) (n int, err error) {
	if datatype != "BYTES" {
		n = elements * sizes[datatype]
	} else {
		for range elements {
			if len(raw)-n < 4 {
				return 0, fmt.Errorf("%d elements are more than %d bytes", elements, len(raw))
			}
			n = int(min(int64(n)+4+int64(binary.LittleEndian.Uint32(raw[n:])), int64(len(raw))+1))
		}
	}
	if n > len(raw) {
		return 0, fmt.Errorf("%d elements are more than %d bytes", elements, len(raw))
	}
	return n, nil
}

// shared opens n clients whose tensors are in one region, and registers the region.
func (g *Group) shared(t *Target, requests []Request, n int) error {
	inputs, most := 0, 0
	for i := range requests {
		if len(requests[i].Outputs) == 0 || !slices.Equal(requests[i].Outputs, requests[0].Outputs) {
			return errors.New("for shared memory requests have to name their outputs, each the same ones")
		}
		most = max(most, len(requests[i].Outputs))
		for _, in := range requests[i].Inputs {
			inputs += aligned(len(in.Data))
		}
	}
	room := aligned(cmp.Or(t.OutputBytes, defaultRoom))
	region, err := newRegion(inputs + n*most*room)
	if err != nil {
		return err
	}
	region.room = room
	g.close = append(g.close, region.close)
	at := 0
	offsets := make([]int, len(requests)) // of each request's first input
	for i := range requests {
		offsets[i] = at
		for _, in := range requests[i].Inputs {
			copy(region.mem[at:], in.Data)
			at += aligned(len(in.Data))
		}
	}
	if err := region.register(t); err != nil {
		return err
	}
	g.close = append([]func() error{func() error { return region.unregister(t) }}, g.close...)
	for c := range n {
		client := t.client(nil)
		client.area = &area{region: region, at: inputs + c*most*room, names: requests[0].Outputs}
		for i := range requests {
			message, err := region.request(&requests[i], offsets[i], inputs+c*most*room)
			if err != nil {
				return err
			}
			client.messages = append(client.messages, t.address(message))
		}
		g.Clients = append(g.Clients, client)
	}
	return nil
}

func aligned(n int) int { return (n + 63) &^ 63 }

// request encodes a request whose inputs and outputs are in the region at the given offsets.
func (r *Region) request(q *Request, in, out int) ([]byte, error) {
	place := func(at, size int) map[string]any {
		return map[string]any{"shared_memory_region": r.name, "shared_memory_offset": at, "shared_memory_byte_size": size}
	}
	var body requestJSON
	for _, t := range q.Inputs {
		body.Inputs = append(body.Inputs, inputJSON{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Parameters: place(in, len(t.Data))})
		in += aligned(len(t.Data))
	}
	for i, name := range q.Outputs {
		body.Outputs = append(body.Outputs, outputJSON{Name: name, Parameters: place(out+i*r.room, r.room)})
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return post(q.path(), "application/json", "", text), nil
}

func (r *Region) register(t *Target) error {
	return t.post("/v2/systemsharedmemory/region/"+r.name+"/register", fmt.Sprintf(`{"key":"/%s","offset":0,"byte_size":%d}`, r.name, len(r.mem)))
}

func (r *Region) unregister(t *Target) error {
	return t.post("/v2/systemsharedmemory/region/"+r.name+"/unregister", "{}")
}

// post sends a body over a connection of its own, which is part of no loop.
func (t *Target) post(path, body string) error {
	c := t.client([][]byte{t.address(post(path, "application/json", "", []byte(body)))})
	c.loop = nil
	err := c.Do(0)
	_ = c.Close() // the request's error matters
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
