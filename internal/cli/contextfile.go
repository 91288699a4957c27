package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti/internal/files"
)

// contextFile is the file of contexts.
type contextFile struct {
	Current  string                   `yaml:"current,omitempty"`
	Contexts map[string]*savedContext `yaml:"contexts,omitempty"`
}

// savedContext describes how to reach a server.
type savedContext struct {
	URL       string   `yaml:"url" json:"url"`
	CACert    string   `yaml:"cacert,omitempty" json:"cacert,omitempty"`
	Cert      string   `yaml:"cert,omitempty" json:"cert,omitempty"`
	Key       string   `yaml:"key,omitempty" json:"key,omitempty"`
	Insecure  bool     `yaml:"insecure,omitempty" json:"insecure,omitempty"`
	Headers   []string `yaml:"headers,omitempty" json:"headers,omitempty"`
	Token     string   `yaml:"token,omitempty" json:"token,omitempty"`
	TokenFile string   `yaml:"token-file,omitempty" json:"token-file,omitempty"`
}

// contextPath returns the path of the file: below XDG_CONFIG_HOME, by default ~/.config.
func contextPath() (string, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("contexts have no folder: %w", err)
	}
	return filepath.Join(folder, "tutti", "contexts.yaml"), nil
}

// readContexts reads the file, which may be missing.
func readContexts() (*contextFile, error) {
	path, err := contextPath()
	if err != nil {
		return nil, err
	}
	file := &contextFile{}
	text, err := os.ReadFile(filepath.Clean(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file, nil
	case err != nil:
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(file); err != nil {
		return nil, fmt.Errorf("the file of contexts '%s' cannot be read: %w", path, err)
	}
	for name, c := range file.Contexts {
		if c == nil || c.URL == "" {
			return nil, fmt.Errorf("the file of contexts '%s' cannot be read: context '%s' has no url", path, name)
		}
	}
	return file, nil
}

// write replaces the file, which only its owner may read.
func (f *contextFile) write() error {
	path, err := contextPath()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return files.Replace(path, text, 0o600)
}

// get returns the context of a name.
func (f *contextFile) get(name string) (*savedContext, error) {
	if c := f.Contexts[name]; c != nil {
		return c, nil
	}
	names := slices.Sorted(maps.Keys(f.Contexts))
	return nil, &failure{exitNotFound, fmt.Errorf("there is no context '%s'%s; 'tutti context list' prints those that exist", name, meant("", name, names))}
}
