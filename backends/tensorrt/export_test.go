//go:build cgo

package tensorrt

// SizeOf returns the bytes of a tensor.
var SizeOf = sizeOf

// Slots returns the slots of a major version, by class and function.
func Slots(major int) map[[2]string]int {
	all := map[[2]string]int{}
	for i := 0; ; i++ {
		class, name, slot, ok := slotOf(major, i)
		if !ok {
			return all
		}
		all[[2]string{class, name}] = slot
	}
}
