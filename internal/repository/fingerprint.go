package repository

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/faults"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Fingerprint returns a hash of what determines the responses of a loaded version, in hexadecimal: of its completed
// configuration, of the names and contents of its files, for an ensemble of the fingerprints of its steps, and for a native
// step of the build of the server. It is the same on every machine with the same content, whatever its folder, its
// instances and its devices. Number 0 is the version that serves requests without one.
//
// The first call for a version reads its files, which may take long. Files that are the same as in an earlier call, by
// their size, time and inode, are not read again.
//
// Errors have the code NotFound or Unavailable, for example while the version is unloaded.
func (r *Repository) Fingerprint(name string, number int64) (string, error) {
	v, err := r.find(name, number)
	if err != nil {
		if status.CodeOf(err) != status.Unavailable {
			err = status.Errorf(status.NotFound, "%w", err)
		}
		return "", err
	}
	sum, err := r.prints.of(v, r.s.Build)
	if err != nil {
		return "", status.Reasonf(status.StorageUnavailable, "the content of model '%s' cannot be read: %w", name, err)
	}
	return hex.EncodeToString(sum), nil
}

// OnGPU reports whether an instance of a model's version that serves requests without a version, or of a step of the ensemble, is on
// a GPU. It is false for a model that is not loaded.
func (r *Repository) OnGPU(name string) bool {
	v, err := r.find(name, 0)
	return err == nil && v.onGPU()
}

func (v *version) onGPU() bool {
	if len(onDevices(v.places)) > 0 || slices.ContainsFunc(v.uses, (*version).onGPU) {
		return true
	}
	return slices.ContainsFunc(v.cfg.GetInstanceGroup(), func(g *modelconfig.ModelInstanceGroup) bool {
		return g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU && len(g.GetGpus()) > 0
	})
}

// prints are the hashes of the files that were read. The zero value is ready to use.
type prints struct {
	mu    sync.Mutex // held while files are read
	files map[fileID][sha256.Size]byte
}

// fileID changes whenever the content of a file does.
type fileID struct {
	device, inode uint64
	size, changed int64
}

// of returns the fingerprint of a version.
func (p *prints) of(v *version, build string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compute(v, build)
}

// compute is of while mu is held.
func (p *prints) compute(v *version, build string) ([]byte, error) {
	if v.fingerprint != nil {
		return v.fingerprint, nil
	}
	h := sha256.New()
	add := func(part []byte) { // with its length, so that parts cannot be shifted
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part)))) // a hash takes everything
		_, _ = h.Write(part)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(essence(v.cfg))
	if err != nil {
		return nil, err
	}
	add(text)
	if v.cfg.GetBackend() == nativeBackend {
		add([]byte(build))
	}
	files, err := p.list(v.dir, v.sig.Version)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := files[name]
		add([]byte(name))
		add(sum[:])
	}
	used := map[string][]byte{}
	for _, u := range v.uses {
		if used[u.sig.Model+"\x00"+strconv.FormatInt(u.sig.Version, 10)], err = p.compute(u, build); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		model, _, _ := strings.Cut(name, "\x00")
		add([]byte(model))
		add(used[name])
	}
	v.fingerprint = h.Sum(nil)
	return v.fingerprint, nil
}

// nativeBackend is the backend of steps that are part of the server.
const nativeBackend = "native"

// essence returns a configuration without what differs between machines that give the same responses.
func essence(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	c := proto.CloneOf(cfg)
	c.InstanceGroup, c.ModelWarmup, c.VersionPolicy = nil, nil, nil
	c.ResponseCache, c.ModelMetrics, c.MetricTags = nil, nil, nil
	return c
}

// list returns the hashes of the files below the folder of a model that belong to a version, by their slash-separated
// names. Those of the version are below "version". The configuration, other versions, and what Python and editors leave
// are left out. An ensemble may have no folder.
func (p *prints) list(dir string, version int64) (map[string][sha256.Size]byte, error) {
	files := map[string][sha256.Size]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		switch number, err := strconv.ParseInt(name, 10, 64); {
		case err == nil && number != version, name == config.FileName, name == "configs":
			continue
		case err == nil:
			name = "version"
		}
		if err := p.add(files, filepath.Join(dir, e.Name()), name, 0); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// deepest bounds the folders in folders, which links may close to a circle.
const deepest = 32

// add adds the hash of a file, or of the files below a folder. Links are followed.
func (p *prints) add(files map[string][sha256.Size]byte, path, name string, depth int) error {
	base := filepath.Base(path)
	if strings.HasPrefix(base, ".") || base == "__pycache__" || strings.HasSuffix(base, ".pyc") {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		files[name], err = p.file(path, info)
		return err
	case !info.IsDir():
		return nil
	case depth == deepest:
		return status.Errorf(status.InvalidArg, "'%s' is more than %d folders deep, is a link one of its own parents?", path, deepest)
	}
	if err := faults.At(faults.FileRead); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := p.add(files, filepath.Join(path, e.Name()), name+"/"+e.Name(), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// file returns the hash of a file.
func (p *prints) file(path string, info fs.FileInfo) (sum [sha256.Size]byte, err error) {
	id := fileID{size: info.Size(), changed: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode = uint64(st.Dev), st.Ino //nolint:unconvert // its type depends on the system
		if sum, ok := p.files[id]; ok {
			return sum, nil
		}
	}
	if err := faults.At(faults.FileRead); err != nil {
		return sum, err
	}
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	if id.inode != 0 {
		if p.files == nil {
			p.files = map[fileID][sha256.Size]byte{}
		}
		p.files[id] = sum
	}
	return sum, nil
}
