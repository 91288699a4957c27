package quantize

import (
	"bytes"
	"context"
	_ "embed" // quantize.py
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/precision"
)

// script is the program of the quantiser.
//
//go:embed quantize.py
var script string

// order is what the script reads: a JSON object.
type order struct {
	Model  string              `json:"model"`
	Output string              `json:"output"`
	To     precision.Precision `json:"to"`
	// Reduce keeps weights in 7 bits, so that sums of pairs of products do not saturate in 16 bits.
	Reduce bool `json:"reduce_range"`
	// Calibration are the inputs of requests, none for dynamic quantisation.
	Calibration [][]array `json:"calibration,omitempty"`
	// Keep is how many matrix products stay in FP32: those with the largest error in Requests. Without a calibration the activations of
	// the others are smoothed where that lowers their error in Requests.
	Keep     int       `json:"keep,omitempty"`
	Requests [][]array `json:"requests,omitempty"`
}

// answer is what the script writes.
type answer struct {
	Error    string `json:"error"`
	Products int    `json:"products"` // matrix products with weights
	Smoothed int    `json:"smoothed"` // those whose activations are smoothed
}

// array is a tensor for numpy. Data is in base64.
type array struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Data  []byte  `json:"data"`
}

// convert fills the folder to with the files of the version folder from, of which the model file is in another precision.
//
// A precision that is a property of the execution, and not of the file, needs a copy of the same file.
//
// keep is how many matrix products stay in FP32.
func (m *model) convert(ctx context.Context, w *samples, p precision.Precision, keep int, from, to string) (a *answer, err error) {
	file := m.file(from)
	inFile := p == precision.INT8 || p == precision.FP16 && m.cfg.GetBackend() == onnxRuntime
	if err := copyFiles(from, to, func(path string) bool { return inFile && isWeight(file, path) }); err != nil || !inFile {
		return &answer{}, err // of a copied file nothing is known
	}
	below, err := filepath.Rel(from, file)
	if err != nil {
		return nil, err
	}
	o := &order{Model: file, Output: filepath.Join(to, below), To: p, Reduce: !precision.Machine().ExactInt8(), Keep: keep}
	if o.Calibration, err = arraysOf(w.calibration); err != nil {
		return nil, err
	}
	if p == precision.INT8 && (keep > 0 || len(o.Calibration) == 0) {
		if o.Requests, err = arraysOf(w.requests[:min(len(w.requests), mostRanked)]); err != nil && keep > 0 {
			return nil, err // without them only smoothing is left out
		}
	}
	return m.run(ctx, o)
}

// mostRanked bounds the requests with which the errors of matrix products are compared, and activations smoothed.
const mostRanked = 16

func arraysOf(requests [][]client.Tensor) (list [][]array, err error) {
	for _, inputs := range requests {
		var one []array
		for i := range inputs {
			a, err := arrayOf(&inputs[i])
			if err != nil {
				return nil, err
			}
			one = append(one, a)
		}
		list = append(list, one)
	}
	return list, nil
}

// isWeight reports whether a file is the model, or has its external data: the converted file has its own.
func isWeight(model, path string) bool {
	return path == model || filepath.Dir(path) == filepath.Dir(model) && (strings.HasPrefix(filepath.Base(path), filepath.Base(model)) ||
		strings.HasSuffix(path, ".data") || strings.HasSuffix(path, ".onnx_data"))
}

// copyFiles copies the files below a folder, except those that skip names, records and hidden files.
func copyFiles(from, to string, skip func(path string) bool) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if strings.HasPrefix(e.Name(), ".") || e.Name() == precision.RecordFile || skip(path) {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err = os.Mkdir(target, 0o755); err == nil { //nolint:gosec // a repository is for everybody
				err = copyFiles(path, target, skip)
			}
		} else {
			err = copyFile(path, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file. Files are not linked: who later writes into one version would change the other.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // a repository is for everybody
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// numpyTypes are the names that numpy has for the data types that it reads from memory.
var numpyTypes = map[tensor.DType]string{
	tensor.Bool: "bool", tensor.Uint8: "uint8", tensor.Uint16: "uint16", tensor.Uint32: "uint32", tensor.Uint64: "uint64",
	tensor.Int8: "int8", tensor.Int16: "int16", tensor.Int32: "int32", tensor.Int64: "int64",
	tensor.FP16: "float16", tensor.FP32: "float32", tensor.FP64: "float64",
}

func arrayOf(t *client.Tensor) (array, error) {
	name, ok := numpyTypes[t.DType]
	if !ok {
		return array{}, status.Errorf(status.Unsupported, "input '%s' is %s, which a calibration cannot have", t.Name, t.DType)
	}
	return array{Name: t.Name, DType: name, Shape: t.Shape, Data: t.Data}, nil
}

// run executes the script.
func (m *model) run(ctx context.Context, o *order) (*answer, error) {
	work, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	python, err := m.Python()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, "-I", "-c", script)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(work), &out, &errs
	if m.Log != nil {
		cmd.Stderr = io.MultiWriter(&errs, m.Log)
	}
	// Temporary files of the quantiser go beside the new version: they may be as large as the model.
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(o.Output))
	err = cmd.Run()
	got := &answer{}
	read := json.Unmarshal(out.Bytes(), got)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case read == nil && got.Error != "":
		return nil, status.Errorf(status.InvalidArg, "'%s' cannot be converted to %s: %s", o.Model, o.To, got.Error)
	case err != nil:
		return nil, fmt.Errorf("'%s' cannot be converted to %s: the quantiser ended with '%w': %s", o.Model, o.To, err, lastLine(errs.String()))
	case read != nil:
		return nil, fmt.Errorf("'%s' cannot be converted to %s: the quantiser's answer cannot be read: %w", o.Model, o.To, read)
	}
	return got, nil
}

// lastLine returns the last line of a text, which of a Python error names it.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
