package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// gpus returns the numbers of the available GPUs.
func (o *Options) gpus() []int32 {
	if o == nil {
		return nil
	}
	var list []int32
	for _, p := range o.Devices {
		if p.Kind == tensor.Device {
			list = append(list, int32(p.ID))
		}
	}
	return list
}

// resolveKind decides what a group leaves open. KIND_AUTO is the CPU unless the group names GPUs that are all
// available. KIND_GPU without numbers means all GPUs.
func resolveKind(g *modelconfig.ModelInstanceGroup, gpus []int32) {
	auto := g.Kind == modelconfig.ModelInstanceGroup_KIND_AUTO
	switch {
	case auto && available(g.Gpus, gpus):
		g.Kind = modelconfig.ModelInstanceGroup_KIND_GPU
	case auto:
		g.Kind, g.Gpus = modelconfig.ModelInstanceGroup_KIND_CPU, nil
	case g.Kind == modelconfig.ModelInstanceGroup_KIND_GPU && len(g.Gpus) == 0:
		g.Gpus = slices.Clone(gpus)
	}
}

// maxInstances bounds a group's count, so that a typing error does not exhaust the machine.
const maxInstances = 1024

func (l *problems) instances() {
	name := l.cfg.GetName()
	if l.cfg.GetPlatform() == EnsemblePlatform {
		return // reported already: its scheduling is missing
	}
	if len(l.cfg.GetInstanceGroup()) == 0 {
		l.add(InstanceGroup, "instance_group", "must specify one or more 'instance group's for %s", name)
	}
	for i, g := range l.cfg.GetInstanceGroup() {
		field := fmt.Sprintf("instance_group[%d]", i)
		switch {
		case g.GetCount() < 0:
			l.add(InstanceGroup, field+".count", "instance group %s of model %s must specify a positive 'count', got %d", g.GetName(), name, g.GetCount())
		case g.GetCount() > maxInstances:
			l.add(InstanceGroup, field+".count", "instance group %s of model %s has 'count' %d, expected at most %d",
				g.GetName(), name, g.GetCount(), maxInstances)
		}
		if modelconfig.ModelInstanceGroup_Kind_name[int32(g.GetKind())] == "" {
			l.add(InstanceGroup, field+".kind", "instance group %s of model %s has kind %d, which is none", g.GetName(), name, g.GetKind())
		}
		l.devices(field, g)
		l.resources(field, g)
	}
}

// devices rejects a group with unavailable devices, or with devices that its kind cannot use.
func (l *problems) devices(field string, g *modelconfig.ModelInstanceGroup) {
	name := l.cfg.GetName()
	switch {
	case g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU:
		if len(g.GetGpus()) > 0 {
			l.add(InstanceGroup, field+".gpus", "instance group %s of model %s has kind %s but specifies one or more GPUs",
				g.GetName(), name, g.GetKind())
		}
		return
	case len(g.GetGpus()) == 0 && len(l.gpus) == 0:
		l.add(InstanceGroup, field+".kind", "instance group %s of model %s has kind KIND_GPU but no GPUs are available, %s", g.GetName(), name, runOnCPU)
		return
	case len(g.GetGpus()) == 0:
		l.add(InstanceGroup, field+".gpus", "instance group %s of model %s has kind KIND_GPU but specifies no GPUs", g.GetName(), name)
	case len(g.GetGpus()) > maxInstances:
		l.add(InstanceGroup, field+".gpus", "instance group %s of model %s lists %d GPUs, expected at most %d", g.GetName(), name, len(g.GetGpus()), maxInstances)
		return
	}
	for _, id := range g.GetGpus() {
		if !slices.Contains(l.gpus, id) {
			l.add(InstanceGroup, field+".gpus", "instance group %s of model %s specifies invalid or unsupported gpu id %d. "+
				"GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: %s; %s",
				g.GetName(), name, id, cmp.Or(numbers(l.gpus), "none"), runOnCPU)
		}
	}
}

func numbers(list []int32) string {
	var words []string
	for _, n := range list {
		words = append(words, strconv.Itoa(int(n)))
	}
	return strings.Join(words, ", ")
}

// resources rejects rate limiter resources without a name or count.
func (l *problems) resources(field string, g *modelconfig.ModelInstanceGroup) {
	for i, r := range g.GetRateLimiter().GetResources() {
		if r.GetName() == "" {
			l.add(InstanceGroup, fmt.Sprintf("%s.rate_limiter.resources[%d]", field, i),
				"instance group %s of model %s has a rate limiter resource without a 'name'", g.GetName(), l.cfg.GetName())
		}
	}
}
