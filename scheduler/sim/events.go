package sim

import "container/heap"

func (x *simulation) at(when float64, do func()) {
	x.serial++
	heap.Push(&x.events, event{when, x.serial, do})
}

// event is a function to call at a time.
type event struct {
	at     float64
	serial int
	do     func()
}

// events is a heap of events by time, those of one time in the order of their making.
type events []event

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a events) Len() int { return len(a) }

func (a events) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].serial < a[j].serial
}
func (a events) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *events) Push(x any) { *a = append(*a, x.(event)) } //nolint:errcheck // no other type is pushed

// Pop implements heap.Interface.
func (a *events) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*a = old[:len(old)-1]
	return last
}
