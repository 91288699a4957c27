package tokenizer

// maxID is the largest id. It bounds the memory of tables by id.
const maxID = 1 << 24

// names returns the entries of a vocabulary by id.
func names(vocab map[string]int32) []string {
	highest := int32(-1)
	for _, id := range vocab {
		highest = max(highest, id)
	}
	out := make([]string, highest+1)
	for k, id := range vocab {
		out[id] = k
	}
	return out
}

// nameOf returns the entry of an id.
func nameOf(names []string, id int32) (string, bool) {
	if uint32(id) >= uint32(len(names)) || names[id] == "" {
		return "", false
	}
	return names[id], true
}
