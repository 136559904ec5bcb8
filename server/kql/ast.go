package kql

// Node is a query as it was written: fields have not been looked up. Its String
// is a query that Parse makes the same node of, if Parse made it.
type Node interface {
	String() string
	isNode()
}

type (
	// All is the empty query.
	All struct{}
	// And has at least two parts, as Or has. Parts that stood in parentheses of
	// their own are one.
	And []Node
	// Or has at least two parts.
	Or []Node
	// Not is of one part.
	Not struct{ Node Node }
	// Is is field : value; without a field any may have the value. A list of values
	// is several of them with the same field.
	Is struct {
		Field *Literal
		Value Literal
	}
	// Range is field < value.
	Range struct {
		Field Literal
		Op    Op
		Value Literal
	}
	// Nested is field : { query }.
	Nested struct {
		Field Literal
		Query Node
	}
)

func (All) isNode()    {}
func (And) isNode()    {}
func (Or) isNode()     {}
func (Not) isNode()    {}
func (Is) isNode()     {}
func (Range) isNode()  {}
func (Nested) isNode() {}

// Op compares.
type Op string

// The operators of ranges.
const (
	Less      Op = "<"
	LessEqual Op = "<="
	More      Op = ">"
	MoreEqual Op = ">="
)

// LiteralKind is how a literal was written.
type LiteralKind int

const (
	Text    LiteralKind = iota // unquoted, without a wildcard
	Phrase                     // in quotes
	Pattern                    // unquoted, with a wildcard
	True                       // true, unquoted, as False and Null are
	False
	Null
)

// Literal is a field's name or a value, with escapes undone.
type Literal struct {
	Kind LiteralKind
	// Text is what it says; of a Pattern * where the wildcards stand.
	Text string
	// Parts of a Pattern are what stands between its wildcards, one more than
	// there are of them: an escaped * is in a part.
	Parts []string
	// Pos and End are where it stands in the query, in bytes.
	Pos, End int
}

// stars says whether a literal is wildcards and nothing else.
func (l *Literal) stars() bool {
	if l.Kind != Pattern {
		return false
	}
	for _, part := range l.Parts {
		if part != "" {
			return false
		}
	}
	return true
}
