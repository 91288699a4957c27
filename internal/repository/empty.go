package repository

import (
	"os"
	"path/filepath"
)

// Empty tells of each folder of Settings.Roots that holds no model, in a sentence that says what is there instead. An empty
// one is no error: models may come later.
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

// instead says what a folder without models is, where that can be told.
func (s *source) hint(root string) string {
	whole := filepath.Clean(root)
	if whole == "." || whole == ".." {
		whole, _ = filepath.Abs(whole) // without a working folder nothing is there either
	}
	if parent := filepath.Dir(whole); s.holdsModel(parent, filepath.Base(whole)) {
		return ", which is the folder of a model: give the folder around it, " + parent
	}
	entries, _ := os.ReadDir(root) // one that cannot be read was told of before
	for _, e := range entries {
		inner := filepath.Join(root, e.Name())
		for range s.list(inner) {
			return ", but models are in " + inner
		}
	}
	return ""
}
