package action

// SetPage makes the service read and write so few agents at once.
func (s *Service) SetPage(n int) { s.page = n }

// The rule of the removal limit.
var (
	RemovalLimit = removalLimit
	CheckRemoved = checkRemoved
)
