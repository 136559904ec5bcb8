package fleet

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that encodes as text such as "10m".
type Duration time.Duration

// D returns d as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil // as if it were absent, as encoding/json wants
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("is %s, want a duration such as %q", b, "10m")
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("is %q, want a duration such as %q", s, "10m")
	}
	*d = Duration(v)
	return nil
}
