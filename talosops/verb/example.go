package verb

import (
	"encoding/json"
	"reflect"
)

// exampleOf returns a request as JSON, with a placeholder in every field.
func exampleOf(req any) string {
	fill(reflect.ValueOf(req).Elem())

	text, err := json.MarshalIndent(req, "  ", "  ")
	if err != nil {
		return err.Error()
	}

	return string(text)
}

func fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // what requests are made of
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				fill(field)
			}
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("{}"))

			return
		}

		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("…"), value)
	case reflect.String:
		v.SetString("…")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(1)
	}
}
