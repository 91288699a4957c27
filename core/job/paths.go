package job

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// Paths are the places that jobs may read and write: local folders, and addresses in buckets such as s3://bucket/texts.
// A place allows what is below it.
type Paths []string

// Check returns an error if a dataset or output is not below one of the places. Symbolic links are followed as far as they
// exist.
func (p Paths) Check(spec *Spec) error {
	for _, place := range []struct{ what, uri string }{{"input", spec.Input.URI}, {"output", spec.Output.URI}} {
		if !slices.ContainsFunc(p, func(allowed string) bool { return below(place.uri, allowed) }) {
			return status.Errorf(status.InvalidArg, "the job's %s '%s' is in no place that jobs may use (%s): the server's option --job-path adds one",
				place.what, place.uri, p.describe())
		}
	}
	return nil
}

func (p Paths) describe() string {
	if len(p) == 0 {
		return "there is none for clients of other machines"
	}
	return strings.Join(p, ", ")
}

// below reports whether a dataset is a place or below it.
func below(uri, place string) bool {
	remote := strings.Contains(place, "://")
	if strings.Contains(uri, "://") != remote || slices.Contains(strings.Split(uri, "/"), "..") {
		return false
	}
	if !remote {
		var err, bad error
		uri, err = resolve(uri)
		place, bad = resolve(place)
		if err != nil || bad != nil {
			return false
		}
	}
	place = strings.TrimRight(place, "/")
	return uri == place || strings.HasPrefix(uri, place+"/")
}

// resolve follows the symbolic links of the part of an absolute path that exists.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	found, err := filepath.EvalSymlinks(path)
	if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
		if parent, err = resolve(parent); err == nil {
			found = filepath.Join(parent, filepath.Base(path))
		}
	}
	return found, err
}
