package kql

// Node is a parsed query, before fields are looked up. String returns a query that
// Parse parses to the same node, if Parse returned the node.
type Node interface {
	String() string
	isNode()
}

type (
	// All is the empty query.
	All struct{}
	// And has at least two parts. A parenthesized group is one part.
	And []Node
	// Or has at least two parts.
	Or []Node
	// Not negates its part.
	Not struct{ Node Node }
	// Is is field : value. Without a field any field may have the value. A list of
	// values becomes several Is with the same field.
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

// Op is a comparison operator.
type Op string

// Values of Op.
const (
	Less      Op = "<"
	LessEqual Op = "<="
	More      Op = ">"
	MoreEqual Op = ">="
)

// LiteralKind is the form in which a literal was written.
type LiteralKind int

const (
	Text    LiteralKind = iota // unquoted, without a wildcard
	Phrase                     // in quotes
	Pattern                    // unquoted, with a wildcard
	True                       // the word true, unquoted; False and Null likewise
	False
	Null
)

// Literal is a field's name or a value, unescaped.
type Literal struct {
	Kind LiteralKind
	// Text is the unescaped text; in a Pattern, * stands for each wildcard.
	Text string
	// Parts are the texts between the wildcards of a Pattern, one more than there are
	// wildcards. An escaped * is part of a text.
	Parts []string
	// Pos and End are its byte offsets in the query.
	Pos, End int
}

// stars reports whether a literal consists of wildcards only.
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
