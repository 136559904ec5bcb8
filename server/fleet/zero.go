package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// CheckGiven returns an error if a request or a file gives a field of a struct as zero although
// zero stands for an absent value there, by the tag zero:"refused". Everything that decodes what
// people write calls it for each field, since a decoded zero cannot be told from an absent one.
func CheckGiven(f reflect.StructField, raw json.RawMessage) error {
	if f.Tag.Get("zero") != "refused" || string(raw) == "null" {
		return nil
	}
	v := reflect.New(f.Type)
	if json.Unmarshal(raw, v.Interface()) != nil || !v.Elem().IsZero() {
		return nil // a wrong type is reported where it is decoded
	}
	return fmt.Errorf("is %v, want more than that: leave it out for the default", v.Elem())
}
