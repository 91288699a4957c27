package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
)

const (
	copySteps = 3
	copyCalls = 4 // of a round
	// copyShare is the most bytes that three steps may copy more than one step, as a multiple of a request's, by the CPU time that they
	// add. If each copied, it would be 2.
	copyShare = 0.5
	// passingPeak and computingPeak are the most memory that a request may take in the server, as a multiple of its body: steps that
	// pass their input on, and steps that each make a new tensor.
	passingPeak   = 1.5
	computingPeak = 2.5
	// sharedPeak is the same besides the region of the client that the server maps.
	sharedPeak = 0.1
)

// growthCopies sends tensors of 100 MB through three steps and checks that no step copies them: by the peak of the server's memory, and
// by the CPU time of three steps against that of one.
func (b *bench) growthCopies() (err error) {
	root, err := os.MkdirTemp("", "bench-growth")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	for name, config := range map[string]string{
		"passing":   copyChain("fp32", "INPUT0", "OUTPUT0"),
		"computing": copyChain("plus", "INPUT", "OUTPUT"),
		"plus":      "backend: \"native\"\n" + copyPorts("INPUT", "OUTPUT") + taxText("step", "tensor") + taxText("op", "add") + taxText("value", "1"),
	} {
		if err := taxWrite(root, name, config); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range []copyCase{
		{"HTTP binary", "passing", sendBinaryTo, 0, passingPeak},
		{"HTTP binary", "computing", sendBinaryTo, 0, computingPeak},
		{"shared memory", "passing", sendSharedTo, wholeSize, sharedPeak},
	} {
		if err := b.copies(root, &c); err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", c.name, c.model, err))
		}
	}
	return errors.Join(errs...)
}

// copyCase is an ensemble of three steps and a way to send it a tensor.
type copyCase struct {
	name, model string
	send        func(p *process, model string, size, calls int) (time.Duration, error)
	mapped      float64 // the bytes of the client's region that the server maps, which count as its memory
	peak        float64 // the most memory of a request, besides that region, as a multiple of its bytes
}

// copies measures one case with a server of its own, which has no memory of earlier requests. The steps that compute have no limit of CPU
// time: theirs is work.
func (b *bench) copies(root string, c *copyCase) (err error) {
	p, err := b.serveAs([]string{"--http-max-input-size=1073741824", "--allow-client-shm=true"}, identities, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	peak, err := p.requestPeak(func() error {
		_, err := c.send(p, c.model, wholeSize, 1)
		return err
	})
	if err != nil {
		return err
	}
	most := (peak - c.mapped) / wholeSize
	fmt.Fprintf(b.table, "%s, 100 MB through %d steps (%s)\tpeak %.2f times the bytes (at most %.1f)", c.name, copySteps, c.model, most, c.peak)
	errs := []error{above("the peak of memory, as a multiple of the request's bytes", most, c.peak)}
	if c.model == "passing" {
		share, err := b.copied(p, c)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.table, "\tcopied by two more steps %.2f times the bytes (at most %.1f)", share, copyShare)
		errs = append(errs, above("the bytes that two more steps copy, as a multiple of the request's bytes", share, copyShare))
	}
	fmt.Fprintln(b.table)
	return errors.Join(errs...)
}

// requestPeak returns how far the resident memory of the server rises while send runs, in bytes.
func (p *process) requestPeak(send func() error) (float64, error) {
	before, err := p.Memory()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(proc.ResetPeak(p.PID()), send()); err != nil {
		return 0, err
	}
	peak, err := proc.Peak(p.PID())
	return float64(peak - before.Resident), err
}

// copied returns the bytes that the ensemble's steps copy besides what one step alone does, as a multiple of a request's bytes: the CPU
// time that they add, over that of copying the bytes once.
func (b *bench) copied(p *process, c *copyCase) (float64, error) {
	from, to := make([]byte, wholeSize), make([]byte, wholeSize)
	var shares []float64
	for round := range b.rounds + 1 {
		one, err := c.send(p, "fp32", wholeSize, copyCalls)
		if err != nil {
			return 0, err
		}
		all, err := c.send(p, c.model, wholeSize, copyCalls)
		if err != nil {
			return 0, err
		}
		began := processCPU()
		copy(to, from)
		if once := processCPU() - began; round > 0 { // the memory is there from the second round on
			shares = append(shares, float64(all-one)/float64(once))
		}
	}
	return median(shares), nil
}

// copyChain returns the configuration of an ensemble that passes INPUT0 through a model three times.
func copyChain(model, in, out string) string {
	var s strings.Builder
	s.WriteString("platform: \"ensemble\"\n" + copyPorts("INPUT0", "OUTPUT0") + "ensemble_scheduling {\n")
	from := "INPUT0"
	for i := range copySteps {
		to := fmt.Sprintf("after%d", i)
		if i == copySteps-1 {
			to = "OUTPUT0"
		}
		fmt.Fprintf(&s, "  step { model_name: %q model_version: -1 input_map { key: %q value: %q } output_map { key: %q value: %q } }\n", model, in, from, out, to)
		from = to
	}
	return s.String() + "}\n"
}

// copyPorts returns the ports of a model of floats, as many as a request has.
func copyPorts(in, out string) string {
	return fmt.Sprintf("input [ { name: %q data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: %q data_type: TYPE_FP32 dims: [ -1 ] } ]\n", in, out)
}
