package sequence

// item is an element of a heap: it has an order and stores its index.
type item[T any] interface {
	before(other T) bool
	setIndex(index int)
	index() int
}

// heap is a binary heap. Its first element in order is at index 0.
type heap[T item[T]] struct{ list []T }

func (h *heap[T]) len() int { return len(h.list) }

func (h *heap[T]) push(x T) {
	h.list = append(h.list, x)
	x.setIndex(len(h.list) - 1)
	h.up(len(h.list) - 1)
}

func (h *heap[T]) pop() T {
	x := h.list[0]
	h.remove(x)
	return x
}

// remove removes an element at any index.
func (h *heap[T]) remove(x T) {
	i, last := x.index(), len(h.list)-1
	h.swap(i, last)
	var none T
	h.list[last] = none
	h.list = h.list[:last]
	x.setIndex(-1)
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].setIndex(i)
	h.list[j].setIndex(j)
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.list[i].before(h.list[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.list) {
			return
		}
		if other := child + 1; other < len(h.list) && h.list[other].before(h.list[child]) {
			child = other
		}
		if !h.list[child].before(h.list[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
