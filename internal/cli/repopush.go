package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/cloud"
)

// pushedModel is a copied model as the command prints it.
type pushedModel struct {
	Model      string   `json:"model"`
	Repository string   `json:"repository"`
	Files      []string `json:"files"` // empty folders end in a slash
}

// repoPush copies a model's folder into a repository. In a folder, the model appears or is replaced in one step. In
// a bucket it is not: repoPush writes config.pbtxt last and then deletes the model's other objects. A polling
// server waits until the objects stop changing.
func (p *program) repoPush(ctx context.Context, out *output, dir, repo string) error {
	dir = filepath.Clean(dir)
	name, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := isModel(name, dir, ""); err != nil {
		return err
	}
	name = filepath.Base(name)
	files, err := modelFiles(dir)
	switch {
	case err != nil:
		return err
	case len(files) == 0:
		return fmt.Errorf("'%s' holds no files", dir)
	case isServer(repo):
		return usagef("models are pushed to a folder or a bucket; a server loads them from there: tutti repo load %s %s", repo, name)
	case cloud.Is(repo):
		err = pushBucket(ctx, repo, name, dir, files)
	default:
		err = pushFolder(ctx, repo, name, dir, files)
	}
	if err != nil {
		return err
	}
	return out.print(p.stdout, pushedModel{name, repo, files}, func() error {
		_, err := fmt.Fprintf(p.stdout, "pushed %s to %s: %d files\n", name, repo, len(files))
		return err
	})
}

// modelFiles lists the files and empty folders below dir by relative path. Folders end in a slash. The
// configuration is last.
func modelFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil || rel == "." {
			return err
		}
		info, err := os.Stat(at) // follows links
		switch {
		case err != nil:
			return err
		case info.IsDir() && d.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("'%s' is a link to a folder, which is not copied", at)
		case info.IsDir():
			entries, err := os.ReadDir(at)
			if err == nil && len(entries) == 0 {
				files = append(files, filepath.ToSlash(rel)+"/")
			}
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("'%s' is no file", at)
		}
		files = append(files, filepath.ToSlash(rel))
		return nil
	})
	if i := slices.Index(files, config.FileName); i >= 0 {
		files = append(slices.Delete(files, i, i+1), config.FileName)
	}
	return files, err
}

// pushFolder copies the files beside the model and renames the copy. It moves the old model away before, and back
// if that fails.
func pushFolder(ctx context.Context, repo, name, dir string, files []string) error {
	temp, err := os.MkdirTemp(repo, "."+name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil { //nolint:gosec // servers of other users read it
		return err
	}
	fresh, old := filepath.Join(temp, "new"), filepath.Join(temp, "old")
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(dir, f), filepath.Join(fresh, f), f[len(f)-1] == '/'); err != nil {
			return err
		}
	}
	at := filepath.Join(repo, name)
	if err := os.Rename(at, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, at); err != nil {
		return errors.Join(err, os.Rename(old, at))
	}
	return nil
}

func copyFile(from, to string, folder bool) error {
	if folder {
		return os.MkdirAll(to, 0o755) //nolint:gosec // as above
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	src, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(filepath.Clean(to), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as above
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// pushBucket writes the files and deletes the model's other objects.
func pushBucket(ctx context.Context, repo, name, dir string, files []string) error {
	b, err := cloud.Open(ctx, repo, &cloud.Options{Env: os.Getenv})
	if err != nil {
		return err
	}
	before, err := b.List(ctx, name+"/")
	if err != nil {
		return err
	}
	for _, f := range files {
		key := path.Join(name, f)
		if f[len(f)-1] == '/' {
			err = b.Write(ctx, key+"/", strings.NewReader(""), 0)
		} else {
			err = cloud.CopyBack(ctx, b, key, filepath.Join(dir, f))
		}
		if err != nil {
			return err
		}
	}
	for _, o := range before {
		if rel, err := filepath.Rel(name, o.Key); err == nil && !slices.Contains(files, filepath.ToSlash(rel)) && !slices.Contains(files, filepath.ToSlash(rel)+"/") {
			if err := b.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
