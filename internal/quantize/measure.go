package quantize

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/precision"
)

// Measure measures a version that is there and writes its record, whether or not it has the fidelity that is demanded: Missed says so.
func Measure(ctx context.Context, s *Settings, version int64) (*Result, error) {
	m, err := s.open()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(m.versions, version) {
		return nil, status.Errorf(status.NotFound, "model '%s' has no version %d, expected one of %v", m.name, version, m.versions)
	}
	from, err := m.reference(version)
	if err != nil {
		return nil, err
	}
	p, err := m.precisionOf(version)
	if err != nil {
		return nil, err
	}
	change, err := m.declare(version, p, from)
	if err != nil {
		return nil, err
	}
	w, err := m.samples(ctx, from)
	if err != nil {
		return nil, err
	}
	r, err := m.measure(ctx, w.requests, m.folder(version), version, p, from)
	if err != nil {
		return nil, err
	}
	if change != nil {
		r.Change, r.Diff = change, change.Diff()
		if m.Write {
			if err := change.Write(); err != nil {
				return nil, err
			}
		}
	}
	r.Folder = m.folder(version)
	return r, r.Record.Write(r.Folder)
}

// precisionOf returns the precision of a version: as declared, else that of its file.
func (m *model) precisionOf(version int64) (precision.Precision, error) {
	p, err := precision.Declared(m.cfg, version)
	if err != nil || p != precision.None {
		return p, err
	}
	file := m.file(m.folder(version))
	p, err = precision.OfFile(file)
	if _, ok := precision.Parse(string(p)); err == nil && !ok {
		err = status.Errorf(status.InvalidArg, "the precision of '%s' is '%s', which cannot be declared", file, p)
	}
	return p, err
}

// measure executes the requests with the reference, version from, and with the version in a folder, and compares the outputs.
func (m *model) measure(ctx context.Context, requests [][]client.Tensor, dir string, version int64, p precision.Precision, from int64) (r *Result, err error) {
	was, err := precision.Declared(m.cfg, from)
	if err != nil {
		return nil, err
	}
	value := ""
	if was != precision.None {
		value = strconv.FormatInt(from, 10) + "=" + string(was)
	}
	if value, err = precision.With(value, version, p, precision.None); err != nil {
		return nil, err
	}
	edits := []config.Edit{{Path: "parameters." + precision.Key, Value: value}}
	if p == precision.FP16 && m.cfg.GetBackend() == onnxRuntime { // a file for GPUs is computed with conversions here
		edits[0].Value = ""
	}
	over, err := m.overlay(map[int64]string{from: m.folder(from), version: dir}, edits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, over.Remove()) }()
	l, err := lab.Open(ctx, &m.Settings.Settings, over.Dir, m.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	sum, err := m.compare(ctx, l, requests, from, version)
	if err != nil {
		return nil, err
	}
	return m.result(dir, version, p, from, sum)
}

// compare executes the requests with both versions.
func (m *model) compare(ctx context.Context, l *lab.Lab, requests [][]client.Tensor, from, version int64) (*precision.Comparison, error) {
	cfg, err := l.Config(m.name, from)
	if err != nil {
		return nil, err
	}
	sum := &precision.Comparison{}
	for i, inputs := range requests {
		var got [2][]precision.Tensor
		for k, n := range []int64{from, version} {
			c, err := l.NewCall(m.name, n, inputs, 1)
			if err != nil {
				return nil, err
			}
			outputs, err := l.Outputs(ctx, c)
			c.Release()
			if err != nil {
				return nil, fmt.Errorf("version %d, request %d: %w", n, i+1, err)
			}
			for _, o := range outputs {
				got[k] = append(got[k], precision.Tensor{Name: o.Name, DType: o.DType, Shape: o.Shape, Data: o.Data})
			}
		}
		if err := sum.Add(got[0], got[1], cfg.GetMaxBatchSize() > 0); err != nil {
			return nil, fmt.Errorf("version %d, request %d: %w", version, i+1, err)
		}
	}
	return sum, nil
}

// result makes the record of a comparison, and checks it against the bound.
func (m *model) result(dir string, version int64, p precision.Precision, from int64, sum *precision.Comparison) (*Result, error) {
	own, err := precision.Hashes(dir)
	if err != nil {
		return nil, err
	}
	reference, err := precision.Hashes(m.folder(from))
	if err != nil {
		return nil, err
	}
	was, err := precision.Declared(m.cfg, from)
	if err != nil {
		return nil, err
	}
	machine := precision.Machine()
	r := &Result{Model: m.name, Version: version, Record: &precision.Record{
		Backend: m.cfg.GetBackend(), Precision: p, Files: own, Requests: sum.Requests, Outputs: sum.Outputs(),
		Reference: precision.Reference{Version: from, Precision: was, Files: reference},
		Processor: machine.String(), Exact: machine.ExactInt8(), Measured: time.Now().UTC().Truncate(time.Second),
	}}
	bound, err := m.bound()
	if err != nil {
		return nil, err
	}
	if bound != nil {
		r.Bound = bound.String()
		if err := bound.Check(r.Record.Outputs); err != nil {
			r.Missed = err.Error()
		}
	}
	if r.Bytes[0], err = size(m.folder(from), reference); err == nil {
		r.Bytes[1], err = size(dir, own)
	}
	return r, err
}

// size returns the bytes of the files of a version, which are the keys of its hashes.
func size(dir string, files map[string]string) (total int64, err error) {
	for name := range files {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}
