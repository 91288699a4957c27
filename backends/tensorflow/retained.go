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

// retained is an input that the runtime still uses after its run, for example in a variable or a queue. It holds a reference to the
// tensor until the runtime releases the memory.
type retained struct {
	loan *C.ttf_loan
	t    tensor.Tensor
}

// releaseReturned releases the inputs that the runtime has released, and returns the others.
func releaseReturned(list []retained) []retained {
	return slices.DeleteFunc(list, func(k retained) bool {
		if C.ttf_lent(k.loan) != 0 {
			return false
		}
		C.free(unsafe.Pointer(k.loan))
		k.t.Release()
		return true
	})
}

// reclaim releases inputs of earlier runs. If the runtime still retains one, the model stores its inputs, and they are copied from now
// on.
func (x *instance) reclaim() {
	if len(x.retained) == 0 {
		return
	}
	if x.retained = releaseReturned(x.retained); len(x.retained) > 0 {
		x.m.copies.Store(true)
	}
}

// retain keeps references to those inputs of a finished run that the runtime still uses.
func (x *instance) retain(b *backends.Batch) error {
	for i := range x.in {
		v := &x.in[i]
		if v.use == 0 || C.ttf_lent(v.loan) == 0 {
			continue
		}
		x.retained = append(x.retained, retained{v.loan, b.In[i].Retain()})
		if v.loan = C.ttf_loan_new(); v.loan == nil {
			_ = x.Close()
			return status.Errorf(status.Internal, "no memory for an instance of model '%s'", x.m.binding.Sig.Model)
		}
	}
	return nil
}
