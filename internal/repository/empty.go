package repository

import (
	"os"
	"path/filepath"
)

// EmptyRoots returns a sentence for each folder of Settings.Roots without models. It says where models are, if they
// can be found. An empty folder is no error: models may be added later.
func (r *Repository) EmptyRoots() []string {
	var list []string
	for _, root := range r.source.roots {
		found := false
		for range r.source.list(root) {
			found = true
			break
		}
		if !found {
			list = append(list, "no model is in "+root+r.source.hint(root))
		}
	}
	return list
}

// hint returns the rest of the sentence for a folder without models: a likely mistake, or nothing.
func (s *source) hint(root string) string {
	whole := filepath.Clean(root)
	if whole == "." || whole == ".." {
		whole, _ = filepath.Abs(whole) // without a working directory there is nothing to find
	}
	if parent := filepath.Dir(whole); s.holdsModel(parent, filepath.Base(whole)) {
		return ", which is the folder of a model: give the folder around it, " + parent
	}
	entries, _ := os.ReadDir(root) // an unreadable root was reported before
	for _, e := range entries {
		inner := filepath.Join(root, e.Name())
		for range s.list(inner) {
			return ", but models are in " + inner
		}
	}
	return ""
}
