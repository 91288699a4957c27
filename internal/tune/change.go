package tune

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/lab"
)

// Changes returns the changes from the current settings to others, by model of the network. The folders of models are
// those of Folder.
func Changes(n *Network, folder func(model string) string, to []Setting) (list []lab.Change, err error) {
	for i := range n.Models {
		m := &n.Models[i]
		edits := Edits(m.Config, &m.Current, &to[i])
		if len(edits) == 0 {
			continue
		}
		c := lab.Change{Model: m.Name, Path: filepath.Join(folder(m.Name), config.FileName)}
		if c.From, err = os.ReadFile(c.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if c.To, err = config.EditText(c.From, edits...); err == nil {
			_, err = config.Parse(c.Path, c.To)
		}
		if err != nil {
			return nil, fmt.Errorf("'%s' cannot be edited: %w", c.Path, err)
		}
		list = append(list, c)
	}
	return list, nil
}
