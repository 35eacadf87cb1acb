// ViewFS
