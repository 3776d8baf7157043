package machine

import (
	"bytes"
	"encoding/json"
)

// MergePatch applies a JSON Merge Patch (RFC 7396) to a JSON text. Members of objects are replaced
// or, where the patch has null, removed; a patch that is not an object replaces the whole text.
// Numbers keep their digits. An empty text counts as null. Callers choose both texts, so MergePatch
// reads each text only once, however deep its objects are nested.
func MergePatch(text, patch []byte) ([]byte, error) {
	var target, change any
	if err := decodeNumbers(patch, &change); err != nil {
		return nil, err
	}
	if len(text) > 0 {
		if err := decodeNumbers(text, &target); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merged(target, change))
}

func decodeNumbers(text []byte, v *any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

func merged(target, patch any) any {
	members, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result, ok := target.(map[string]any)
	if !ok {
		result = make(map[string]any, len(members))
	}
	for name, value := range members {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = merged(result[name], value)
		}
	}
	return result
}
