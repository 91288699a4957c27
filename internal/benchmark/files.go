package benchmark

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/load"
)

// Files describe inputs from files.
type Files struct {
	// Paths are files and folders:
	//   - .json: the body of a KServe request; .jsonl and .ndjson whose first line has "inputs": one in each line
	//   - a folder with .json files: each of them
	//   - everything that package dataset reads: .npz and .npy (their first axis are the rows), .jsonl with a row in each line,
	//     .csv, .parquet, and folders of images or texts
	Paths []string
	// Batch is the number of rows of a request, 1 by default. It does not matter for bodies of requests.
	Batch int
	// Columns names the columns of inputs. An input without a name has the column of its own name. The only input of a model
	// has the only column of a dataset.
	Columns map[string]string
}

const (
	// mostRequests is the number of requests after which the rest of the files is not read.
	mostRequests = 10000
	// largestFiles bounds the memory of requests from files.
	largestFiles = 1 << 30
	largestLine  = 256 << 20
)

// Requests returns the requests of the files, in their order.
func (f *Files) Requests(ctx context.Context, d *infer.Description) ([]load.Request, error) {
	var list []load.Request
	for _, path := range f.Paths {
		bodies, err := bodyFiles(path)
		if err != nil {
			return nil, err
		}
		var found []load.Request
		if bodies != nil {
			found, err = readBodies(bodies, d)
		} else {
			found, err = f.rows(ctx, path, d)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the files have no request: %s", strings.Join(f.Paths, ", "))
	}
	return list[:min(len(list), mostRequests)], nil
}

// bodyFiles returns the files that have bodies of requests: path itself, or those in it. It returns none for a dataset.
func bodyFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && (strings.Contains(path, "://") || strings.ContainsAny(path, "*?[")):
		return nil, nil // a bucket or a pattern
	case err != nil:
		return nil, err
	case info.IsDir():
		names, err := filepath.Glob(filepath.Join(path, "*.json"))
		slices.Sort(names)
		return names, err
	}
	switch filepath.Ext(path) {
	case ".json":
		return []string{path}, nil
	case ".jsonl", ".ndjson":
		if is, err := hasBodies(path); err != nil || is {
			return []string{path}, err
		}
	}
	return nil, nil
}

// hasBodies reports whether the first line of a file is the body of a request.
func hasBodies(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var first struct {
		Inputs []json.RawMessage `json:"inputs"`
	}
	err = json.NewDecoder(bufio.NewReader(io.LimitReader(f, largestLine))).Decode(&first)
	return err == nil && first.Inputs != nil, nil
}

// body is the body of a KServe request.
type body struct {
	Inputs  []bodyTensor `json:"inputs"`
	Outputs []struct {
		Name string `json:"name"`
	} `json:"outputs"`
	Parameters map[string]any `json:"parameters"`
}

// bodyTensor is an input of a body. Golden requests may have its bytes in "raw", in base64.
type bodyTensor struct{ client.Tensor }

// UnmarshalJSON decodes the tensor.
func (t *bodyTensor) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &t.Tensor); err != nil {
		return err
	}
	var r struct {
		Raw []byte `json:"raw"`
	}
	if err := json.Unmarshal(b, &r); err != nil || r.Raw == nil {
		return err
	}
	t.Data = r.Raw
	n := tensor.Of(t.Shape...).Elements()
	switch want := n * int64(t.DType.Size()); {
	case t.DType == tensor.Bytes:
		return tensor.CheckBytes(t.Data, n)
	case n < 0 || want != int64(len(t.Data)):
		return fmt.Errorf("input '%s' has %d bytes, expected %d for shape %v of %s", t.Name, len(t.Data), want, t.Shape, t.DType)
	}
	return nil
}

// readBodies reads files of bodies.
func readBodies(paths []string, d *infer.Description) ([]load.Request, error) {
	var list []load.Request
	size := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		for len(list) < mostRequests && size < largestFiles {
			var b body
			at := int(dec.InputOffset())
			err := dec.Decode(&b)
			if errors.Is(err, io.EOF) {
				break
			}
			var r load.Request
			if err == nil {
				r, err = b.request(d)
			}
			if err != nil {
				return nil, fmt.Errorf("'%s', line %d: %w; expected the body of a KServe request: {\"inputs\": [{\"name\": ..., \"datatype\": ..., \"shape\": ..., \"data\": ...}]}",
					path, lineAt(text, at), err)
			}
			for i := range r.Inputs {
				size += len(r.Inputs[i].Data)
			}
			list = append(list, r)
		}
	}
	return list, nil
}

// lineAt returns the number of the line of the first character from an offset that is no space.
func lineAt(text []byte, offset int) int {
	offset = min(offset, len(text))
	offset += len(text[offset:]) - len(bytes.TrimLeft(text[offset:], " \t\r\n"))
	return 1 + bytes.Count(text[:offset], []byte("\n"))
}

// request returns the request of a body.
func (b *body) request(d *infer.Description) (load.Request, error) {
	r := load.Request{Model: d.Model}
	if len(b.Inputs) == 0 {
		return r, errors.New("the request has no inputs")
	}
	if len(b.Parameters) > 0 {
		return r, errors.New("the request has parameters, which are not sent")
	}
	for i := range b.Inputs {
		in := &b.Inputs[i]
		if !slices.ContainsFunc(d.Inputs, func(p infer.Port) bool { return p.Name == in.Name }) {
			return r, fmt.Errorf("model '%s' has no input '%s', expected one of: %s", d.Model, in.Name, portNames(d.Inputs))
		}
		r.Inputs = append(r.Inputs, load.Tensor{Name: in.Name, Datatype: in.DType.String(), Shape: in.Shape, Data: in.Data})
	}
	for _, o := range b.Outputs {
		r.Outputs = append(r.Outputs, o.Name)
	}
	if len(r.Outputs) == 0 {
		r.Outputs = outputNames(d)
	}
	return r, nil
}

// rows reads a dataset.
func (f *Files) rows(ctx context.Context, path string, d *infer.Description) ([]load.Request, error) {
	set, err := dataset.Open(ctx, job.Place{URI: path}, nil)
	if err != nil {
		return nil, err
	}
	columns, err := set.Columns(ctx)
	if err != nil {
		return nil, err
	}
	binder, err := dataset.NewBinder(d, &job.Spec{Columns: f.mapping(d, columns)}, columns)
	if err != nil {
		return nil, err
	}
	size := max(f.Batch, 1)
	if size > max(d.MaxBatch, 1) {
		return nil, fmt.Errorf("a request of %d rows is larger than max_batch_size %d of model '%s'", size, d.MaxBatch, d.Model)
	}
	rows, err := set.Select(binder.Columns()...).Head(ctx, mostRequests*size)
	if err != nil {
		return nil, err
	}
	batch, list := binder.NewBatch(tensor.NewPool()), []load.Request(nil)
	flush := func() error {
		if batch.Rows() == 0 {
			return nil
		}
		r, err := collect(batch, d)
		list = append(list, r)
		return err
	}
	for _, row := range rows {
		added, err := batch.Add(row)
		if err == nil && !added {
			if err = flush(); err == nil {
				_, err = batch.Add(row)
			}
		}
		if err == nil && batch.Rows() >= size {
			err = flush()
		}
		if err != nil {
			return nil, fmt.Errorf("'%s', %s: %w", path, row.Place(), err)
		}
	}
	return list, flush()
}

// mapping returns the columns of inputs. It binds the only input of a model to the only column besides the path of a file.
func (f *Files) mapping(d *infer.Description, columns []dataset.Column) map[string]string {
	if len(f.Columns) > 0 || len(d.Inputs) != 1 {
		return f.Columns
	}
	var names []string
	for i := range columns {
		if columns[i].Name == d.Inputs[0].Name {
			return nil
		}
		if columns[i].Name != "path" {
			names = append(names, columns[i].Name)
		}
	}
	if len(names) != 1 {
		return nil
	}
	return map[string]string{d.Inputs[0].Name: names[0]}
}

// collect returns the request of a batch and empties it.
func collect(batch *dataset.Batch, d *infer.Description) (load.Request, error) {
	r := load.Request{Model: d.Model, Outputs: outputNames(d)}
	named, err := batch.Inputs()
	if err != nil {
		return r, err
	}
	for i := range named {
		t := &named[i].Tensor
		r.Inputs = append(r.Inputs, load.Tensor{
			Name: named[i].Name, Datatype: t.DType.String(), Shape: slices.Clone(t.Shape.Dims()), Data: bytes.Clone(t.Buf.Bytes()[:t.Len]),
		})
		t.Release()
	}
	return r, nil
}
