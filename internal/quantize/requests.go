package quantize

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/replay"
)

// samples are the inputs of the model in the requests of a call.
type samples struct {
	requests    [][]client.Tensor // to measure with
	calibration [][]client.Tensor // to calibrate with; nil for none
}

// mostRequests bounds the requests of a measurement and of a calibration: more make it no better.
const mostRequests = 512

// samples reads the requests and executes those to ensembles, with the reference version of the model.
//
// The requests to measure with are those of Data, else the golden requests of the model or of Ensemble, else the requests to it in
// expected.json of the repository, else those of Calibration.
func (m *model) samples(ctx context.Context, from int64) (s *samples, err error) {
	over, err := m.overlay(map[int64]string{from: m.folder(from)}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, over.Remove()) }()
	s = &samples{}
	if len(m.Calibration) > 0 {
		if s.calibration, err = m.inputs(ctx, over.Dir, m.Calibration); err != nil {
			return nil, err
		}
	}
	s.requests, err = m.inputs(ctx, over.Dir, m.Data)
	if _, none := errors.AsType[*lab.NoSamplesError](err); none && s.calibration != nil {
		s.requests, err = s.calibration, nil
	}
	return s, err
}

// inputs returns the inputs of the model in the requests of files; without files in the requests that Samples finds.
func (m *model) inputs(ctx context.Context, root string, paths []string) (list [][]client.Tensor, err error) {
	captures, files, err := split(paths)
	if err != nil {
		return nil, err
	}
	target := m.name
	if m.Ensemble != "" {
		target = m.Ensemble
	}
	models := []string{m.name, target}
	byModel := map[string][][]client.Tensor{}
	for _, c := range captures {
		req, err := c.Request()
		if err != nil {
			return nil, fmt.Errorf("'%s': %w", c.Path, err)
		}
		byModel[req.Model] = append(byModel[req.Model], req.Inputs)
		models = append(models, req.Model)
	}
	slices.Sort(models)
	models = slices.Compact(models)
	l, err := lab.Open(ctx, &m.Settings.Settings, root, models...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	if len(files) > 0 || len(captures) == 0 {
		d, err := l.Describe(target, 0)
		if err != nil {
			return nil, err
		}
		found, err := lab.Samples(ctx, m.root, target, files, d)
		if err != nil {
			return nil, err
		}
		byModel[target] = append(byModel[target], found...)
	}
	for _, name := range models {
		found, err := m.called(ctx, l, name, byModel[name])
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.NotFound, "no request calls model '%s'", m.name)
	}
	return list[:min(len(list), mostRequests)], nil
}

// called returns the inputs with which requests to a model call the model of the call: the model itself, or an ensemble.
func (m *model) called(ctx context.Context, l *lab.Lab, name string, requests [][]client.Tensor) (list [][]client.Tensor, err error) {
	if name == m.name {
		return requests, nil
	}
	p, err := l.Plan(name, 0)
	if err != nil {
		return nil, err
	}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Operation != nil || n.Signature.Decoupled {
			return nil, status.Errorf(status.Unsupported, "ensemble '%s' has the step '%s', and only ensembles whose steps all run once for every request are executed step by step: "+
				"give requests to model '%s' itself", name, n.Name, m.name)
		}
	}
	for i, request := range requests[:min(len(requests), mostRequests)] {
		inputs, err := l.Walk(ctx, p, request)
		if err != nil {
			return nil, fmt.Errorf("request %d to '%s': %w", i+1, name, err)
		}
		for k := range p.Nodes {
			if p.Nodes[k].Model == m.name {
				list = append(list, inputs[k])
			}
		}
	}
	if len(list) == 0 && len(requests) > 0 {
		return nil, status.Errorf(status.InvalidArg, "'%s' does not call model '%s'", name, m.name)
	}
	return list, nil
}

// split returns the captures among files and the others. A folder whose files are captures counts as one of captures.
func split(paths []string) (captures []*replay.Capture, files []string, err error) {
	for _, path := range paths {
		name := path
		if found, _ := filepath.Glob(filepath.Join(path, "*.npz")); len(found) > 0 {
			name = found[0]
		}
		if !strings.EqualFold(filepath.Ext(name), ".npz") {
			files = append(files, path)
			continue
		}
		list, err := replay.Find([]string{path})
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(list, func(c *replay.Capture) bool { return c.Err != nil }) { // arrays of a dataset
			files = append(files, path)
			continue
		}
		captures = append(captures, list...)
	}
	return captures, files, nil
}

// overlay makes a folder of links to the models of the repository, in which the model has the given versions: folders by number. edits
// are further changes of its configuration.
func (m *model) overlay(versions map[int64]string, edits []config.Edit) (over *lab.Overlay, err error) {
	if over, err = lab.NewOverlay(m.root); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, over.Remove())
		}
	}()
	numbers := make([]string, 0, len(versions))
	for n := range versions {
		numbers = append(numbers, strconv.FormatInt(n, 10))
	}
	slices.Sort(numbers)
	text, err := config.EditText(m.text, append([]config.Edit{
		{Path: "parameters." + precision.FidelityKey},
		{Path: "version_policy"},
		{Path: "version_policy", Value: "{ specific { versions: [ " + strings.Join(numbers, ", ") + " ] } }"},
	}, edits...)...)
	if err != nil {
		return over, err
	}
	if err := over.Set(m.name, m.Dir, text); err != nil {
		return over, err
	}
	// Golden requests are compared element by element at load: a version in another precision is not to be loaded for that.
	if err := os.RemoveAll(filepath.Join(over.Dir, m.name, "golden")); err != nil {
		return over, err
	}
	for n, dir := range versions {
		link := filepath.Join(over.Dir, m.name, strconv.FormatInt(n, 10))
		if err := os.RemoveAll(link); err != nil { // of a link, only the link
			return over, err
		}
		if err := os.Symlink(dir, link); err != nil {
			return over, err
		}
	}
	return over, nil
}
