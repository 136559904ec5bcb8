package kql

// Simplify returns an equivalent filter in which Everything and Nothing occur only at
// the top, AllOf and AnyOf have at least two parts and none of their own kind, and
// NotOf does not negate a NotOf.
func Simplify(f Filter) Filter {
	switch f := f.(type) {
	case AllOf:
		var parts AllOf
		for _, part := range f {
			switch part := Simplify(part).(type) {
			case Nothing:
				return part
			case Everything:
			case AllOf:
				parts = append(parts, part...)
			default:
				parts = append(parts, part)
			}
		}
		switch len(parts) {
		case 0:
			return Everything{}
		case 1:
			return parts[0]
		}
		return parts
	case AnyOf:
		var parts AnyOf
		for _, part := range f {
			switch part := Simplify(part).(type) {
			case Everything:
				return part
			case Nothing:
			case AnyOf:
				parts = append(parts, part...)
			default:
				parts = append(parts, part)
			}
		}
		switch len(parts) {
		case 0:
			return Nothing{}
		case 1:
			return parts[0]
		}
		return parts
	case NotOf:
		switch part := Simplify(f.Filter).(type) {
		case Everything:
			return Nothing{}
		case Nothing:
			return Everything{}
		case NotOf:
			return part.Filter
		default:
			return NotOf{part}
		}
	}
	return f
}

// comparisons returns how many lookups a store needs for a filter; each word of a list
// counts.
func comparisons(f Filter) int {
	n := 1
	switch f := f.(type) {
	case AllOf:
		n = 0
		for _, part := range f {
			n += comparisons(part)
		}
	case AnyOf:
		n = 0
		for _, part := range f {
			n += comparisons(part)
		}
	case NotOf:
		n = comparisons(f.Filter)
	case Like:
		n = patternCost
	case HasWord:
		n = len(f.Words)
	case HasPhrase:
		n = len(f.Words)
	}
	return n
}
