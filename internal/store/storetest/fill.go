package storetest

import (
	"fmt"
	"reflect"
	"slices"
)

// transient are the fields of rows that are valid only within one batch and are not stored.
var transient = []string{"New", "Attention", "Was", "Gone", "Told"}

// fill gives every field of a row a different value, so that a test notices each field that a
// store forgets, including fields that are added later. n counts the values.
func fill(row any, n *int) { fillValue(reflect.ValueOf(row).Elem(), n) }

func fillValue(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(transient, f.Name) {
				fillValue(v.Field(i), n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), n)
	case reflect.Array:
		for i := range v.Len() {
			fillValue(v.Index(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillValue(v.Index(0), n)
		fillValue(v.Index(1), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillValue(key, n)
		fillValue(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d ünïcode <&>", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n%7 + 1)) // a number from 1 to 7, which is valid for states, classes and bytes
	case reflect.Uint64, reflect.Uint:
		v.SetUint(uint64(*n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1_000_003)
	default:
		panic(fmt.Sprintf("storetest: a row has a field of kind %s, which fill does not know", v.Kind()))
	}
}
