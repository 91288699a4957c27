package repository

import (
	"crypto/md5" //nolint:gosec // what configurations say is checked, not kept secret
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// checksumAgent is the only supported repository agent. Its parameters are "MD5:FILE" or "SHA256:FILE" with the
// expected sum in hexadecimal digits. FILE is relative to the model's folder. For example, key "MD5:1/model.onnx"
// with value "b1946ac92492d2347c6235b4d2611184".
const checksumAgent = "checksum"

func runAgents(dir string, cfg *modelconfig.ModelConfig) error {
	for _, a := range cfg.GetModelRepositoryAgents().GetAgents() {
		if a.GetName() != checksumAgent {
			return status.Errorf(status.Unsupported, "unsupported: repository agent '%s', expected '%s'", a.GetName(), checksumAgent)
		}
		if err := inspectSums(dir, a.GetParameters()); err != nil {
			return err
		}
	}
	return nil
}

// inspectSums compares the sums of files with the expected ones. Its errors are those of Triton's checksum agent.
func inspectSums(dir string, sums map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		kind, file, ok := strings.Cut(key, ":")
		if !ok {
			return status.Errorf(status.InvalidArg, "failed to parse key: %s", key)
		}
		var sum hash.Hash
		switch strings.ToLower(kind) {
		case "md5":
			sum = md5.New() //nolint:gosec // as above
		case "sha256", "sha-256":
			sum = sha256.New()
		default:
			return status.Errorf(status.Unsupported, "Unsupported checksum algorithm: %s", kind)
		}
		if err := addFile(sum, dir, file); err != nil {
			return status.Errorf(status.InvalidArg, "failed to open text file for read %s: %w", file, err)
		}
		if got, want := hex.EncodeToString(sum.Sum(nil)), sums[key]; !strings.EqualFold(got, want) {
			return status.Errorf(status.InvalidArg, "Mismatched %s hash for file %s, expect: %s, got: %s", strings.ToUpper(kind), file, want, got)
		}
	}
	return nil
}

func addFile(sum io.Writer, dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Stat(name); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(sum, f)
	return err
}
