package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// Folder returns a source of metadata for Settings: the files NAME.json of a folder, each the response of /v2/models/NAME.
func Folder(dir string) func(context.Context, string) (*infer.Metadata, error) {
	return func(_ context.Context, name string) (*infer.Metadata, error) {
		path := filepath.Join(dir, name+".json")
		data, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			_, err = os.Stat(dir)
			return nil, err
		}
		if err != nil {
			return nil, err
		}
		m := &infer.Metadata{}
		if err := json.Unmarshal(data, m); err != nil {
			return nil, fmt.Errorf("'%s' is not the metadata of a model, expected the response of /v2/models/%s: %w", path, name, err)
		}
		if len(m.Inputs) == 0 || len(m.Outputs) == 0 {
			return nil, fmt.Errorf("'%s' has no inputs or no outputs, expected the response of /v2/models/%s", path, name)
		}
		return m, nil
	}
}

// signature returns the tensors of a model; nil if they are not known.
func (b *builder) signature(at value, name string) *signature {
	if s, read := b.signatures[name]; read {
		return s
	}
	if b.signatures == nil {
		b.signatures = map[string]*signature{}
	}
	b.signatures[name] = nil
	if b.Metadata == nil {
		return nil
	}
	m, err := b.Metadata(b.ctx, name)
	if err != nil {
		b.fail(at, "the metadata of the model '%s' could not be read: %v", name, err)
	}
	if m == nil || err != nil {
		return nil
	}
	s := &signature{b.ports(at, name, m.Inputs), b.ports(at, name, m.Outputs)}
	b.signatures[name] = s
	return s
}

func (b *builder) ports(at value, model string, list []infer.TensorMetadata) []port {
	ports := make([]port, 0, len(list))
	for _, t := range list {
		d := tensor.ParseDType(t.Datatype)
		if d == tensor.Invalid {
			b.fail(at, "the metadata of the model '%s' say that the tensor '%s' has the type '%s', expected one of KServe v2, for example FP32", model, t.Name, t.Datatype)
			continue
		}
		ports = append(ports, port{t.Name, d.ConfigName(), t.Shape, true})
	}
	return ports
}

// needed is signature for a model whose tensors must be known.
func (b *builder) needed(at value, name string) *signature {
	s := b.signature(at, name)
	if s == nil {
		if b.unknown == nil {
			b.unknown = map[string]value{}
		}
		if _, there := b.unknown[name]; !there {
			b.unknown[name] = at
		}
	}
	return s
}

// missing returns an error for each model whose tensors must be known.
func (b *builder) missing() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(b.unknown)) {
		at := b.unknown[name]
		errs = append(errs, fmt.Errorf("%s:%d: %s: the tensors of the model '%s' are not in the file: expected --metadata URL of a server that has it, or --metadata DIR with %s.json, the response of /v2/models/%s",
			b.file, at.n.Line, at.path, name, name, name))
	}
	return errs
}
