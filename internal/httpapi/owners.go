package httpapi

func (a *api) owners() {}
