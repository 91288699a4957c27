package steps

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// Find returns the path of the file that a parameter names. It searches the version folder, then
// the model folder. The file must be regular, and may lie outside of these folders only by
// way of a symbolic link in them.
func (s *Settings) Find(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("file '%s' of model '%s' is outside the model folder", name, s.Model)
	}
	odd := ""
	for _, dir := range []string{s.Dir, s.ModelDir} {
		path := filepath.Join(dir, name)
		switch info, err := os.Stat(path); {
		case err != nil:
		case info.Mode().IsRegular():
			return path, nil
		default: // opening a pipe would wait for its writer forever
			odd = fmt.Sprintf(": expected a file at '%s', found %s", path, info.Mode())
		}
	}
	if odd == "" {
		odd = fmt.Sprintf(" is neither in '%s' nor in '%s'", s.Dir, s.ModelDir)
		if near := config.DidYouMean(name, s.files()); near != "" {
			odd += "." + near
		}
	}
	return "", config.WithFix(config.Errorf(config.StepParam, "", "file '%s' of model '%s'%s", name, s.Model, odd), "put the file into the model's folder, or correct its name")
}

// files returns the names of the files in the version folder and in the model folder.
func (s *Settings) files() []string {
	var names []string
	for _, dir := range []string{s.Dir, s.ModelDir} {
		entries, _ := os.ReadDir(dir) // a folder that cannot be read counts as empty
		for _, e := range entries {
			if e.Type().IsRegular() {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// Int parses parameter key as an integer of at least lowest.
func (s *Settings) Int(key string, lowest int) (int, error) {
	n, err := strconv.Atoi(s.Params[key])
	if err != nil || n < lowest {
		return 0, fmt.Errorf("parameter '%s' of model '%s' is '%s', expected an integer of at least %d",
			key, s.Model, s.Params[key], lowest)
	}
	return n, nil
}

// Bool parses parameter key as "true" or "false".
func (s *Settings) Bool(key string) (bool, error) {
	switch s.Params[key] {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("parameter '%s' of model '%s' is '%s', expected true or false", key, s.Model, s.Params[key])
	}
}

// Float parses parameter key as a finite number.
func (s *Settings) Float(key string) (float64, error) {
	f, err := strconv.ParseFloat(s.Params[key], 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("parameter '%s' of model '%s' is '%s', expected a number", key, s.Model, s.Params[key])
	}
	return f, nil
}

// InputError returns an invalid-argument error for a row of a batch, for Batch.Fail. It names the
// input, and the row where its request has several. For example, "input 'IMAGE' row 1: ...".
func InputError(b *backends.Batch, input string, row int, err error) error {
	place := ""
	for i := range b.Requests {
		if r := &b.Requests[i]; r.Rows > 1 && row >= r.First && row < r.First+r.Rows {
			place = fmt.Sprintf(" row %d", row-r.First)
		}
	}
	return status.Errorf(status.InvalidArg, "input '%s'%s: %w", input, place, err)
}
