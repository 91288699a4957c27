package tensorflow

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// kept is an input that the runtime went on referring to after the run that it was lent for: a variable or a queue has
// it. It holds a reference of its own on the memory until the runtime gives it back.
type kept struct {
	loan *C.ttf_loan
	t    tensor.Tensor
}

// settled releases what the runtime has given back and returns the rest.
func settled(list []kept) []kept {
	return slices.DeleteFunc(list, func(k kept) bool {
		if C.ttf_lent(k.loan) != 0 {
			return false
		}
		C.free(unsafe.Pointer(k.loan))
		k.t.Release()
		return true
	})
}

// reclaim looks at what earlier runs left behind. What is still there by now is there to stay: from now on the model's
// inputs are copied.
func (x *instance) reclaim() {
	if len(x.kept) == 0 {
		return
	}
	if x.kept = settled(x.kept); len(x.kept) > 0 {
		x.m.copies.Store(true)
	}
}

// keep holds on to those inputs of a finished run that the runtime still refers to.
func (x *instance) keep(b *backends.Batch) error {
	for i := range x.in {
		v := &x.in[i]
		if v.use == 0 || C.ttf_lent(v.loan) == 0 {
			continue
		}
		x.kept = append(x.kept, kept{v.loan, b.In[i].Retain()})
		if v.loan = C.ttf_loan_new(); v.loan == nil {
			_ = x.Close()
			return status.Errorf(status.Internal, "no memory for an instance of model '%s'", x.m.binding.Sig.Model)
		}
	}
	return nil
}
