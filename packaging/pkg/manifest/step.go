package manifest

import "fmt"

// CheckStep returns an error unless what keeps state can go from one version to another: state is
// brought from each minor version to the next, and back by one. So the major version must be the
// same, and the minor version the same, any higher one, or the previous one.
func CheckStep(from, to string) error {
	a, err := ParseVersion(from)
	if err != nil {
		return err
	}
	b, err := ParseVersion(to)
	if err != nil {
		return err
	}
	is, want := a.Segments64(), b.Segments64()
	switch {
	case is[0] != want[0]:
		return fmt.Errorf("version %s cannot follow %s: their major versions differ", to, from)
	case want[1] < is[1]-1:
		return fmt.Errorf("version %s cannot follow %s: state goes back by one minor version at a time, to %d.%d first", to, from, is[0], is[1]-1)
	}
	return nil
}
