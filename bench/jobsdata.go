package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	corejob "github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/load"
)

// vectors writes a dataset of FP32[16] for the ensemble of identities. A client sends the same rows in the same form: JSON
// for JSON Lines, binary tensors for npz.
func (s *jobServer) vectors(rows int, format string) (*jobLoad, error) {
	const width = 16
	l := &jobLoad{model: "identities", protocol: load.JSON, format: format, rows: rows, name: fmt.Sprintf("%d vectors, %s", rows, format)}
	if format == "npz" {
		l.protocol, l.shown = load.Binary, true
	}
	ctx := context.Background()
	out, err := dataset.OpenOutput(ctx, corejob.Place{URI: s.root, Format: format}, nil)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("vectors-%d", rows)
	l.input.URI = filepath.Join(s.root, name+"."+format)
	if err = os.RemoveAll(l.input.URI); err != nil {
		return nil, err
	}
	part, err := out.Part(ctx, name, []dataset.Column{{Name: "INPUT0", Kind: dataset.Tensor, DType: tensor.FP32, Shape: []int64{width}}})
	if err != nil {
		return nil, err
	}
	var batch []byte
	for row := range rows {
		data := make([]byte, 0, 4*width)
		for i := range width {
			v := float32(row%9973)*0.37 + float32(i) + float32(row)/1e6
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		if err = part.Write(int64(row), []dataset.Cell{{Kind: dataset.Tensor, DType: tensor.FP32, Shape: []int64{width}, Data: data}}); err != nil {
			return nil, err
		}
		if batch = append(batch, data...); rows <= jobRows && (len(batch) == jobBatch*4*width || row == rows-1) {
			in := load.Tensor{Name: "INPUT0", Datatype: "FP32", Shape: []int64{int64(len(batch) / (4 * width)), width}, Data: batch}
			l.requests = append(l.requests, load.Request{Model: l.model, Outputs: []string{"OUTPUT0"}, Inputs: []load.Tensor{in}})
			batch = nil
		}
	}
	_, err = part.Close()
	return l, err
}

// texts writes a dataset of different sentences for the text ensemble.
func (s *jobServer) texts() (*jobLoad, error) {
	mix, err := os.ReadFile("bench/testdata/text_mix.txt")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(mix), "\n"), "\n")
	l := &jobLoad{model: "ensemble", protocol: load.JSON, rows: jobTexts, name: fmt.Sprintf("%d texts", jobTexts)}
	var file []byte
	var batch [][]byte
	for row := range jobTexts {
		text := fmt.Sprintf("%s %d", lines[row%len(lines)], row)
		line, err := json.Marshal(map[string]string{"TEXT": text})
		if err != nil {
			return nil, err
		}
		file = append(append(file, line...), '\n')
		if batch = append(batch, []byte(text)); len(batch) == jobBatch || row == jobTexts-1 {
			in := load.Bytes("TEXT", []int64{int64(len(batch)), 1}, batch...)
			l.requests = append(l.requests, load.Request{Model: l.model, Outputs: []string{"embedding"}, Inputs: []load.Tensor{in}})
			batch = nil
		}
	}
	l.input.URI = filepath.Join(s.root, "texts.jsonl")
	return l, os.WriteFile(l.input.URI, file, 0o600)
}
