package durable

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/dataset"
)

// finish is the activity that ends a job: it checks the counts and the checksums of all parts, writes the manifest in one
// step, and removes what the manifest does not name. Chunks whose parts are lost or damaged are returned instead.
func (a *activities) finish(ctx context.Context, o finishOrder) (*finished, error) {
	ctx, h := a.beat(ctx, -1)
	defer h.stop()
	f := &finisher{d: &data{place: o.place}, plan: o.Plan, heart: h}
	err := f.d.read(ctx, a.s)
	if err == nil {
		err = f.run(ctx)
	}
	return &f.done, h.cause(fault(err))
}

type finisher struct {
	d        *data
	plan     plan
	heart    *heart
	manifest job.Manifest
	sum      dataset.Sum
	used     map[string]bool // objects that stay
	done     finished
}

func (f *finisher) run(ctx context.Context) error {
	f.used = map[string]bool{manifestKey: true}
	next := int64(0)
	for number := range f.plan.Chunks {
		ok, err := f.chunk(ctx, number, &next)
		if err != nil {
			return err
		}
		if !ok {
			if f.done.Bad = append(f.done.Bad, number); len(f.done.Bad) >= maxWindow {
				break
			}
			if err = f.d.out.Delete(ctx, sidecarKey(f.d.Run, number)); err != nil {
				return err
			}
		}
		f.heart.set(next)
	}
	if len(f.done.Bad) > 0 {
		return nil
	}
	f.done.Rows.Total = f.plan.Rows
	m := &f.manifest
	m.Job, m.Model, m.Version, m.Fingerprint = f.d.Job, f.d.Spec.Model, f.d.Checked.Version, f.d.Checked.Fingerprint
	m.Format, m.Rows, m.Sum = f.d.out.Format(), f.done.Rows, f.sum.String()
	if m.Parts == nil {
		m.Parts = []job.Part{}
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if err = f.d.out.Put(ctx, manifestKey, append(text, '\n')); err != nil {
		return err
	}
	f.done.Manifest = f.d.out.Name(manifestKey)
	return f.clean(ctx)
}

// chunk adds a chunk to the manifest, and reports whether its parts are whole. next is the row that must follow.
func (f *finisher) chunk(ctx context.Context, number int64, next *int64) (bool, error) {
	c, err := f.d.chunk(ctx, number)
	if err != nil {
		return false, err
	}
	key := sidecarKey(f.d.Run, number)
	s, err := readSidecar(ctx, f.d.out, key)
	*next = c.First + c.Rows
	if err != nil || s == nil || !s.whole() || s.First != c.First || s.Rows != c.Rows || s.Sum != c.Sum {
		return false, err
	}
	if ok, err := s.intact(ctx, f.d.out); err != nil || !ok {
		return false, err
	}
	n := s.count()
	if n.Done+n.Failed != c.Rows {
		return false, nil
	}
	sums := make([]dataset.Sum, len(s.Parts))
	for i := range s.Parts {
		if sums[i], err = dataset.ParseSum(s.Parts[i].Sum); err != nil {
			return false, nil //nolint:nilerr // the chunk is executed again
		}
	}
	for i := range s.Parts {
		p := s.Parts[i].Part
		f.sum.Add(sums[i])
		f.used[p.Path], f.used[p.Errors] = true, true
		f.manifest.Parts = append(f.manifest.Parts, p)
	}
	f.used[key] = true
	f.done.Chunks++
	f.done.Rows.Done += n.Done
	f.done.Rows.Failed += n.Failed
	f.done.Rows.Reused += n.Reused
	return true, nil
}

// clean removes the parts that the manifest does not name, what other jobs have left, and the plan. With overwrite it
// removes everything else.
func (f *finisher) clean(ctx context.Context) error {
	for o, err := range f.d.out.List(ctx, "") {
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(o.Key, "/")
		stays := f.used[o.Key] || !ours(o.Key) && !f.d.Spec.Overwrite || top == jobFolder
		if !stays {
			if err = f.d.out.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	return f.cleanJobs(ctx)
}

// cleanJobs removes the folders of jobs. That of this job goes last, and its file last of all: an attempt that is killed
// before is repeated.
func (f *finisher) cleanJobs(ctx context.Context) error {
	own := jobKey(f.d.Run)
	for o, err := range f.d.out.List(ctx, jobFolder) {
		if err != nil {
			return err
		}
		if path.Dir(o.Key) != path.Dir(own) && !strings.HasPrefix(o.Key, planFolder(f.d.Run)) {
			if err = f.d.out.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
