package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// alternatives finds the versions of each model that are the same model in another precision, and tries whether the ensemble can be
// served with them.
func (t *tuning) alternatives(ctx context.Context, n *Network, p *plan.Plan) error {
	for i := range n.Models {
		m := &n.Models[i]
		if threadsKey(m.Config.GetBackend()) == "" {
			continue // the precision of other backends is not declared
		}
		current := currentVersion(p, m.Name)
		list, err := t.family(m, current)
		if err != nil {
			return fmt.Errorf("the versions of model '%s': %w", m.Name, err)
		}
		for _, a := range list {
			if a.Refused == "" {
				a.Refused = t.tryVersion(ctx, m, a.Version)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.Versions = append(m.Versions, a)
		}
		if len(list) == 0 {
			m.Offer = t.offer(m, current)
		}
	}
	return nil
}

// currentVersion returns the version of a model that the ensemble calls.
func currentVersion(p *plan.Plan, model string) int64 {
	i := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Model == model })
	return p.Nodes[i].Signature.Version
}

// family returns the versions of a model in other precisions than the current one that were measured against the same version, are
// that version, or were never measured. Of several in one precision it is the highest one that
// is not refused.
func (t *tuning) family(m *Model, current int64) ([]Alternative, error) {
	dir, err := filepath.Abs(filepath.Join(t.Root, m.Name))
	if err != nil {
		return nil, err
	}
	numbers, _, err := repository.VersionFolders(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := precisionOf(m, current)
	if err != nil {
		return nil, err
	}
	of, _ := origin(filepath.Join(dir, strconv.FormatInt(current, 10)), current, now)
	found := map[precision.Precision]Alternative{}
	for _, n := range numbers {
		folder := filepath.Join(dir, strconv.FormatInt(n, 10))
		p, err := precisionOf(m, n)
		if err != nil {
			return nil, err
		}
		from, known := origin(folder, n, p)
		if n == current || p == now || known && from != of {
			continue
		}
		a := Alternative{Version: Version{Number: n, Precision: p}}
		if err := precision.Gate(m.Config, n, folder, dir, precision.Machine()); err != nil {
			a.Refused = oneLine(err.Error())
		} else if _, demanded := m.Config.GetParameters()[precision.FidelityKey]; !demanded && p != precision.FP32 {
			a.Refused = "the configuration demands no fidelity: set the parameter '" + precision.FidelityKey + "', for example 'cosine=0.99'"
		}
		if old, ok := found[p]; !ok || a.Refused == "" || old.Refused != "" {
			found[p] = a
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Alternative) int { return cmp.Compare(a.Number, b.Number) }), nil
}

// precisionOf returns the declared precision of a version, fp32 without a declaration.
func precisionOf(m *Model, version int64) (precision.Precision, error) {
	p, err := precision.Declared(m.Config, version)
	if p == precision.None {
		p = precision.FP32
	}
	return p, err
}

// origin returns the version that a version in a folder was measured against; of one in fp32, the version itself. It is not known of a
// version in a lower precision that was never measured.
func origin(folder string, version int64, p precision.Precision) (of int64, known bool) {
	if p == precision.FP32 {
		return version, true
	}
	r, err := precision.ReadRecord(folder)
	if err != nil {
		return 0, false
	}
	return r.Reference.Version, true
}

// tryVersion loads the ensemble with a version of a model. It returns why it cannot be served, for example because golden requests of the
// ensemble refuse it; empty if it can.
func (t *tuning) tryVersion(ctx context.Context, m *Model, v Version) (refused string) {
	over, err := lab.NewOverlay(t.Root)
	if err != nil {
		return oneLine(err.Error())
	}
	set := m.Current
	set.Version = v
	if err = t.copyModel(over, m, m.Name, &set); err == nil {
		var l *bench
		if l, err = openLab(ctx, t.Settings, over.Dir, t.Ensemble); err == nil {
			err = l.Close(ctx)
		}
	}
	if err = errors.Join(err, over.Remove()); err != nil {
		return oneLine(err.Error())
	}
	return ""
}

// offer returns the command that makes a version of a model in another precision, which this machine executes faster. Empty if there is
// none.
func (t *tuning) offer(m *Model, current int64) string {
	file := filepath.Join(t.Root, m.Name, strconv.FormatInt(current, 10), m.Config.GetDefaultModelFilename())
	machine, to := precision.Machine(), precision.None
	switch found, err := precision.OfFile(file); {
	case err != nil || found != precision.FP32:
	case m.Config.GetBackend() == "onnxruntime" && machine.ExactInt8():
		to = precision.INT8
	case m.Config.GetBackend() == "openvino" && machine.FastBF16():
		to = precision.BF16
	}
	if to == precision.None {
		return ""
	}
	return fmt.Sprintf("tutti quantize %s --to %s --ensemble %s --fidelity cosine=0.99 --write", filepath.Join(t.Root, m.Name), to, t.Ensemble)
}

// executions returns how the model was measured: by version, then by threads.
func (m *Model) executions() []Execution {
	return slices.SortedFunc(maps.Keys(m.Costs), func(a, b Execution) int {
		return cmp.Or(cmp.Compare(a.Version.Number, b.Version.Number), cmp.Compare(a.Threads, b.Threads))
	})
}

// String describes the version. For example, "version 2 in int8".
func (v Version) String() string {
	return fmt.Sprintf("version %d in %s", v.Number, v.Precision)
}

// suffix is what a table has behind the name of the model. For example, " 2 (int8)"; nothing for the current version.
func (v Version) suffix() string {
	if v == (Version{}) {
		return ""
	}
	return fmt.Sprintf(" %d (%s)", v.Number, v.Precision)
}

// versionsText prints which versions in other precisions were tried. Where the slowest model has none, it prints how to make one.
func (n *Network) versionsText(b *strings.Builder) {
	slowest, most := -1, 0.0
	for i := range n.Models {
		m := &n.Models[i]
		for _, a := range m.Versions {
			if a.Refused == "" {
				fmt.Fprintf(b, "%s: %s was tried, too.\n", m.Name, a.Version)
			} else {
				fmt.Fprintf(b, "%s: %s was not tried: %s\n", m.Name, a.Version, a.Refused)
			}
		}
		var one Batch
		one.add(n.typical(i))
		if wall := m.cost(&m.Current).Wall(&one); wall > most {
			slowest, most = i, wall
		}
	}
	if slowest >= 0 && n.Models[slowest].Offer != "" {
		fmt.Fprintf(b, "%s takes the most time and has no version in a lower precision. This command makes one for tune to try: %s\n", n.Models[slowest].Name, n.Models[slowest].Offer)
	}
}
